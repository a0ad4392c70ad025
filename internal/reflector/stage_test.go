package reflector_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/source"
)

// TestInitialEventsInAnyOrder compares the list made of initial events with a model, for
// events in the order of keys and in any other.
func TestInitialEventsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// A namespace may begin with another; a slash and a dash differ in order.
		objects := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) *meta {
			return &meta{ObjectMeta: metav1.ObjectMeta{
				Namespace: rapid.SampledFrom([]string{"", "a", "a-b", "a0", "ab", "b"}).Draw(rt, "namespace"),
				Name:      rapid.SampledFrom([]string{"a", "a-b", "ab", "b", "c"}).Draw(rt, "name"),
			}}
		}), 0, 20).Draw(rt, "objects")
		key := func(o *meta) string { return strings.TrimPrefix(o.Namespace+"/"+o.Name, "/") }
		if rapid.Bool().Draw(rt, "in order, at first") {
			n := rapid.IntRange(0, len(objects)).Draw(rt, "sorted")
			slices.SortFunc(objects[:n], func(a, b *meta) int { return cmp.Compare(key(a), key(b)) })
		}
		type held struct {
			key, version string
		}
		var events []source.Event[*meta]
		var want []held
		for i, o := range objects {
			o.ResourceVersion = fmt.Sprint(i + 1)
			e := source.Event[*meta]{Type: source.Added, Object: o}
			at := slices.IndexFunc(want, func(h held) bool { return h.key == key(o) })
			switch n := rapid.IntRange(0, 9).Draw(rt, "type"); {
			case n == 0:
				e.Type = source.Deleted
				if at >= 0 {
					want = slices.Delete(want, at, at+1)
				}
			case at >= 0:
				e.Type = source.Modified
				want[at].version = o.ResourceVersion
			default:
				want = append(want, held{key(o), o.ResourceVersion})
			}
			events = append(events, e)
		}
		text := "replaced"
		for _, h := range want {
			text += " " + h.key[strings.LastIndex(h.key, "/")+1:] + "@" + h.version
		}
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []answer{{events: append(events, end("99"))}}}
			deltas, status := run(t, s, reflector.Options{}, time.Second)
			if len(deltas) != 1 || deltas[0] != text+" at 99" || status.Received != int64(len(want)) {
				rt.Errorf("it pushed %q of %d, not %q", deltas, status.Received, text)
			}
		})
	})
}
