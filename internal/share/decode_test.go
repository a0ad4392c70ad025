package share_test

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidings-io/tidings/internal/share"
)

// builtIn are the types of the built-in kinds but lists, in a fixed order.
func builtIn() (all []reflect.Type) {
	seen := map[reflect.Type]bool{}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if _, ok := reflect.New(typ).Interface().(message); ok && gvk.Version != "__internal" && !seen[typ] && !strings.HasSuffix(typ.Name(), "List") {
			seen[typ] = true
			all = append(all, typ)
		}
	}
	slices.SortFunc(all, func(a, b reflect.Type) int {
		return strings.Compare(a.PkgPath()+a.Name(), b.PkgPath()+b.Name())
	})
	return all
}

// random encodes a random object of a type, nil if it has no encoding.
func random(typ reflect.Type, seed int64) []byte {
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, genericFuncs), rand.NewSource(seed), serializer.NewCodecFactory(scheme.Scheme))
	object := reflect.New(typ)
	fill.NumElements(1, 2).NilChance(0.7).Fill(object.Interface())
	wire, err := object.Interface().(message).Marshal()
	if err != nil {
		return nil
	}
	return wire
}

// compare decodes wire both ways and reports whether Decode succeeded. Its object must be
// equal to Unmarshal's, even after wire has been overwritten.
func compare(t *testing.T, table *share.Table, typ reflect.Type, wire []byte) (any, bool) {
	t.Helper()
	want, got := reflect.New(typ).Interface(), reflect.New(typ).Interface()
	err := want.(message).Unmarshal(wire)
	input := slices.Clone(wire)
	ok := table.Decode(input, got, false)
	for i := range input {
		input[i] = 0xaa
	}
	if !ok {
		return nil, false
	}
	if err != nil {
		t.Fatalf("%s: %x is decoded as\n%v, and Unmarshal says: %v", typ, wire, got, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: %x is decoded as\n%#v, not\n%#v", typ, wire, got, want)
	}
	return got, true
}

// TestDecodeEveryBuiltInKind decodes random objects of every kind, each several times
// between similar ones so that remembered parts are used, and damages them in every way.
func TestDecodeEveryBuiltInKind(t *testing.T) {
	types := builtIn()
	if len(types) < 100 {
		t.Fatalf("only %d kinds are tested", len(types))
	}
	refused := 0
	for n, typ := range types {
		table := share.New()
		rng := rand.New(rand.NewSource(int64(n)))
		var wires [][]byte
		for i := range 4 {
			if wire := random(typ, int64(100*n+i)); wire != nil {
				wires = append(wires, wire)
			}
		}
		var objects, copies []any
		for range 3 {
			for _, wire := range wires {
				got, ok := compare(t, table, typ, wire)
				if !ok {
					refused++
					continue
				}
				copied := reflect.New(typ).Interface()
				if err := copied.(message).Unmarshal(wire); err != nil {
					t.Fatal(err)
				}
				objects, copies = append(objects, got), append(copies, copied)
			}
		}
		for _, wire := range wires {
			for range 40 {
				compare(t, table, typ, damage(rng, wire))
			}
		}
		if !reflect.DeepEqual(objects, copies) { // the first ones too, after the last was decoded
			t.Fatalf("an object of type %s has changed since it was decoded", typ)
		}
	}
	if refused > 0 {
		t.Errorf("%d sound objects of %d kinds had to be left to Unmarshal", refused, len(types))
	}
}

// damage changes an encoding at random.
func damage(rng *rand.Rand, wire []byte) []byte {
	out := slices.Clone(wire)
	switch at := rng.Intn(len(out) + 1); rng.Intn(6) {
	case 0: // cut short
		return out[:at]
	case 1: // a bit is wrong
		if at < len(out) {
			out[at] ^= 1 << rng.Intn(8)
		}
	case 2: // a byte is wrong
		if at < len(out) {
			out[at] = byte(rng.Intn(256))
		}
	case 3: // everything comes twice
		return append(out, wire...)
	case 4: // some of it does
		return append(out, wire[at:]...)
	case 5: // an unknown field, or a known one out of order
		field := protowire.AppendTag(nil, protowire.Number(rng.Intn(40)+1), protowire.Type(rng.Intn(6)))
		return slices.Insert(out, at, append(field, 2, 8, 1)...)
	}
	return out
}

// TestDecodeUnknownFields checks fields that only a newer server knows, of any wire type
// and at every level.
func TestDecodeUnknownFields(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 1<<40)
	unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 901, protowire.BytesType), []byte("newer"))
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 902, protowire.Fixed64Type), 7)
	unknown = protowire.AppendFixed32(protowire.AppendTag(unknown, 903, protowire.Fixed32Type), 7)
	nested := func(number protowire.Number, in []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), in)
	}
	name := nested(1, []byte("a"))
	for _, wire := range [][]byte{
		slices.Concat(unknown, nested(1, name)),
		slices.Concat(nested(1, slices.Concat(name, unknown)), unknown),
		slices.Concat(nested(1, name), nested(2, nested(1, slices.Concat(name, nested(2, nested(2, unknown)), unknown)))), // of a volume
	} {
		if _, ok := compare(t, share.New(), reflect.TypeFor[corev1.Pod](), wire); !ok {
			t.Errorf("%x is not decoded", wire)
		}
	}
}

// TestDecodeShares checks that equal parts of similar pods share memory, including those
// of the first pod.
func TestDecodeShares(t *testing.T) {
	table := share.New()
	yes, seconds := true, int64(30)
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web", "tier": "front"}},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &seconds,
				Containers: []corev1.Container{{
					Name: name, // a containers' array for each
					Env:  []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}, {Name: "MODE", Value: "fast"}},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						"cpu": resource.MustParse("100m"),
					}},
					SecurityContext: &corev1.SecurityContext{Privileged: &yes},
				}},
				Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}},
				Volumes: []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
					SizeLimit: resource.NewQuantity(1<<30, resource.BinarySI),
				}}}},
			},
		}
		wire, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, ok := compare(t, table, reflect.TypeFor[corev1.Pod](), wire)
		if !ok {
			t.Fatal("a pod is not decoded")
		}
		return got.(*corev1.Pod)
	}
	var pods []*corev1.Pod
	for i := range 10 {
		pods = append(pods, pod(fmt.Sprintf("web-%d", i)))
	}
	parts := func(p *corev1.Pod) map[string]any {
		c := &p.Spec.Containers[0]
		return map[string]any{
			"labels":          reflect.ValueOf(p.Labels).Pointer(),
			"env":             unsafe.SliceData(c.Env),
			"requests":        reflect.ValueOf(c.Resources.Requests).Pointer(),
			"securityContext": c.SecurityContext,
			"tolerations":     unsafe.SliceData(p.Spec.Tolerations),
		}
	}
	// If two hashes collide, a part is remembered later or not at all.
	first, last, ofFirst := parts(pods[0]), parts(pods[9]), 0
	for name, at := range parts(pods[8]) {
		if at != last[name] {
			t.Errorf("two pods have %s of their own", name)
		}
		if at == first[name] {
			ofFirst++
		}
	}
	if ofFirst == 0 {
		t.Error("the first pod has nothing in common with those that followed")
	}
	for _, p := range pods {
		if q := p.Spec.Containers[0].Resources.Requests["cpu"]; q.String() != "100m" {
			t.Errorf("%s requests %s", p.Name, &q)
		}
	}
	// A Quantity behind a pointer is written to by AsDec, which its readers may
	// call: it is each pod's own.
	if a, b := pods[8].Spec.Volumes[0].EmptyDir.SizeLimit, pods[9].Spec.Volumes[0].EmptyDir.SizeLimit; a == b {
		t.Error("two pods have a quantity in common")
	}
}

// TestDecodeDropsManagedFields also checks that they are not decoded.
func TestDecodeDropsManagedFields(t *testing.T) {
	for range 3 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}, {Manager: "n"}}}}
		wire, err := pod.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var got corev1.Pod
		if !share.New().Decode(wire, &got, true) || got.ManagedFields != nil || got.Name != "a" {
			t.Errorf("%+v", got)
		}
	}
}

// foreign has tags that contradict its Unmarshal.
type foreign struct {
	Name string `protobuf:"bytes,1,opt,name=name"`
}

func (f *foreign) Unmarshal([]byte) error { f.Name = "what Unmarshal says"; return nil }

func TestDecodeLeavesForeignTypesAlone(t *testing.T) {
	if share.New().Decode([]byte("\x0a\x01a"), &foreign{}, false) {
		t.Error("a type of another module is decoded by its tags")
	}
}

// TestMemoIsBounded in number of parts and in bytes.
func TestMemoIsBounded(t *testing.T) {
	table := share.New()
	big := strings.Repeat("x", 100<<10)
	for i := range 500 {
		cm := &corev1.ConfigMap{Data: map[string]string{"i": fmt.Sprint(i), "big": big}}
		wire, err := cm.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			compare(t, table, reflect.TypeFor[corev1.ConfigMap](), wire)
		}
	}
	if parts, bytes := table.MemoSize(); parts > 1<<16 || bytes > 16<<20 {
		t.Errorf("%d parts of %d bytes are remembered", parts, bytes)
	}
	table.Forget()
	if parts, bytes := table.MemoSize(); parts != 0 || bytes != 0 {
		t.Errorf("%d parts of %d bytes are remembered after everything has been forgotten", parts, bytes)
	}
}

// TestConcurrentDecode decodes the same pods in several goroutines while others
// read them; the race detector is the test.
func TestConcurrentDecode(t *testing.T) {
	wires := encode(t, 200)
	table := share.New()
	var wg sync.WaitGroup
	for seed := range int64(4) {
		wg.Go(func() {
			order := rand.New(rand.NewSource(seed))
			for range 400 {
				wire := wires[order.Intn(len(wires))]
				var pod, want corev1.Pod
				if !table.Decode(slices.Clone(wire), &pod, false) || want.Unmarshal(wire) != nil {
					t.Error("a pod cannot be decoded")
				}
				if !reflect.DeepEqual(pod, want) {
					t.Error("a pod differs")
				}
				for _, c := range pod.Spec.Containers { // what readers do
					for _, q := range c.Resources.Requests {
						_ = q.AsDec()
					}
				}
			}
		})
	}
	wg.Wait()
}

func FuzzDecode(f *testing.F) {
	types := builtIn()
	for i, typ := range types {
		if i%8 == 0 {
			f.Add(uint16(i), random(typ, int64(i)), []byte(nil))
		}
	}
	pod := slices.Index(types, reflect.TypeFor[corev1.Pod]())
	for i, wire := range encode(f, 60) {
		if i%20 == 0 {
			f.Add(uint16(pod), wire, wire)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint16, first, second []byte) {
		typ := types[int(kind)%len(types)]
		table := share.New()
		for _, wire := range [][]byte{first, second, first, second, first} {
			compare(t, table, typ, wire)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	wires := encode(b, 1000)
	table := share.New()
	b.ReportAllocs()
	for i := range b.N {
		var pod corev1.Pod
		if !table.Decode(wires[i%len(wires)], &pod, true) {
			b.Fatal("a pod is not decoded")
		}
	}
}
