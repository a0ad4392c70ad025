package codec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/codec"
	objects "github.com/tidings-io/tidings/internal/object"
)

func TestRawKeepsTheHashesOfOwners(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	for _, owners := range []int{0, 1, 3, 300} {
		for _, data := range []int{0, 2000} { // too small to compress, and not
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "own", ResourceVersion: "7"}, Data: map[string]string{}}
			for i := range data / 10 {
				cm.Data[fmt.Sprint("key", i)] = "value"
			}
			var want []uint64
			for i := range owners {
				uid := fmt.Sprint("owner-", i)
				cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Any", Name: "any", UID: types.UID(uid)})
				want = append(want, objects.OwnerHash(uid))
			}
			wire, err := cm.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(cm)
			if err != nil {
				t.Fatal(err)
			}
			for _, asked := range []bool{true, false} {
				opts := codec.Options{Owners: asked, Pack: codec.NewPacker()}
				raw, err := codec.For[*codec.Raw](kind, opts)
				if err != nil {
					t.Fatal(err)
				}
				typed, err := codec.For[*corev1.ConfigMap](kind, opts)
				if err != nil {
					t.Fatal(err)
				}
				compact := codec.NewCompact(typed, opts, nil, codec.NewPacker())
				for range 40 { // beyond the first dictionary
					for name, decode := range map[string]func() (*codec.Raw, error){
						"raw":      func() (*codec.Raw, error) { return raw.Decode(codec.JSON, text) },
						"JSON":     func() (*codec.Raw, error) { return compact.Decode(codec.JSON, text) },
						"protobuf": func() (*codec.Raw, error) { return compact.Decode(codec.Protobuf, wire) },
					} {
						o, err := decode()
						if err != nil {
							t.Fatal(err)
						}
						have := o.AppendOwners(nil)
						if asked && !slices.Equal(have, want) || !asked && have != nil {
							t.Fatalf("%s: %d owners, asked for %v: %d hashes", name, owners, asked, len(have))
						}
						if o.HasOwner("owner-0") != (owners > 0) || o.HasOwner("owner-299") != (owners == 300) || o.HasOwner("own") {
							t.Fatalf("%s: HasOwner is wrong for %d owners", name, owners)
						}
						if got := compact.Expand(o); len(got.OwnerReferences) != owners || len(got.Data) != len(cm.Data) {
							t.Fatalf("%s: the object has become %+v", name, got)
						}
					}
				}
			}
		}
	}
}

// TestOwnersOfOddObjects checks metadata that no API server sends.
func TestOwnersOfOddObjects(t *testing.T) {
	raw, err := codec.For[*codec.Raw](schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, codec.Options{Owners: true})
	if err != nil {
		t.Fatal(err)
	}
	for owners, want := range map[string]int{
		`null`: 0, `[]`: 0, `{}`: 0, `"x"`: 0, `7`: 0, `[null,7,"x",[],{}]`: 0, `[{"uid":7},{"uid":null},{"uid":""}]`: 0,
		`[{"uid":"a"},{"name":"b"},{"uid":"c"}]`: 2, `[{"uid":"a\u0062"}]`: 1,
	} {
		o, err := raw.Decode(codec.JSON, []byte(`{"metadata":{"name":"a","ownerReferences":`+owners+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.AppendOwners(nil); len(got) != want {
			t.Errorf("%s: %d owners", owners, len(got))
		}
	}
	o, err := raw.Decode(codec.JSON, []byte(`{"metadata":{"name":"a","ownerReferences":[{"uid":"a\u0062"}]}}`))
	if err != nil || !o.HasOwner("ab") {
		t.Errorf("an escaped uid is not found: %v", err)
	}
}
