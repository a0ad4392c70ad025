package source_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// Lists and initial events use the objects that Lookup returns and decode the others,
// in order. Changes are always decoded.
func TestKnownObjectsAreNotDecodedAgain(t *testing.T) {
	const n = 2000
	cases := map[string]func(i int) bool{
		"none":              func(int) bool { return false },
		"all":               func(int) bool { return true },
		"every other one":   func(i int) bool { return i%2 == 0 },
		"all but a few":     func(i int) bool { return i%100 != 7 },
		"those at the end":  func(i int) bool { return i > n/2 },
		"all but the first": func(i int) bool { return i > 0 },
	}
	var items []corev1.ConfigMap
	for i := range n {
		items = append(items, makeConfigMap(i))
	}
	for _, w := range wires[2:] {
		events := make([][]byte, 0, n+2)
		for _, item := range items {
			events = append(events, w.frame("ADDED", w.single(item)))
		}
		events = append(events, w.bookmark("9999", map[string]string{metav1.InitialEventsAnnotationKey: "true"}), w.frame("MODIFIED", w.single(items[0])))
		list, stream := w.list(metav1.ListMeta{ResourceVersion: "9999"}, items...), join(events...)
		for name, inStore := range cases {
			held := map[object.Identity]*metav1.PartialObjectMetadata{}
			for i, item := range items {
				if inStore(i) {
					held[identity(&item)] = &metav1.PartialObjectMetadata{ObjectMeta: item.ObjectMeta}
				}
			}
			lookup := func(id object.Identity) (*metav1.PartialObjectMetadata, bool) {
				o, ok := held[id]
				return o, ok
			}
			check := func(what string, got []*metav1.PartialObjectMetadata) {
				t.Helper()
				if len(got) != n {
					t.Fatalf("%s, %s held, %s: %d objects", w.name, name, what, len(got))
				}
				for i, o := range got {
					if o.Name != items[i].Name {
						t.Fatalf("%s, %s held, %s: object %d is %s", w.name, name, what, i, o.Name)
					}
					mine := o == held[identity(o)]
					if mine != inStore(i) {
						t.Fatalf("%s, %s held, %s: object %d is the one held: %v", w.name, name, what, i, mine)
					}
				}
			}
			var got []*metav1.PartialObjectMetadata
			if _, err := newSource[*metav1.PartialObjectMetadata](w.answer(list), configMaps).Reuse(lookup).List(t.Context(), source.ListOptions{}, func(o *metav1.PartialObjectMetadata) error {
				got = append(got, o)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			check("list", got)
			got = nil
			if err := newSource[*metav1.PartialObjectMetadata](w.answer(stream), configMaps).Reuse(lookup).Watch(t.Context(), source.WatchOptions{InitialEvents: true}, func(e source.Event[*metav1.PartialObjectMetadata]) error {
				if e.Type == source.Added {
					got = append(got, e.Object)
				}
				if e.Type == source.Modified && inStore(0) && e.Object == got[0] {
					t.Errorf("%s, %s held: a change is not decoded", w.name, name)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			check("initial events", got)
		}
	}
}

func identity(o metav1.Object) object.Identity {
	return object.Identity{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}
}
