package source_test

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/source"
)

// Initial events are decoded in bulk, but delivered in order and as they arrive: an
// event never waits for more than the one after it.
func TestInitialEventsAreDelivered(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				incoming, sender := io.Pipe()
				server := packets{w.answer(nil), func(io.Reader) io.Reader { return incoming }}
				var got []string
				done := make(chan error)
				go func() {
					done <- newSource[*metav1.PartialObjectMetadata](server, configMaps).Watch(t.Context(), source.WatchOptions{InitialEvents: true}, func(e source.Event[*metav1.PartialObjectMetadata]) error {
						switch {
						case e.InitialEventsEnd:
							got = append(got, "end")
						case e.Type == source.Bookmark:
							got = append(got, "bookmark")
						case e.Type == source.Added:
							got = append(got, e.Object.Name)
						default:
							got = append(got, "change of "+e.Object.Name)
						}
						return nil
					})
				}()
				send := func(frames ...[]byte) {
					if _, err := sender.Write(join(frames...)); err != nil {
						t.Error(err)
					}
					synctest.Wait()
				}
				added := func(i int) []byte { return w.frame("ADDED", w.single(makeConfigMap(i))) }
				for i := range 4 {
					send(added(i))
					if len(got) < i {
						t.Errorf("%d objects have come, %q have been handed on", i+1, got)
					}
				}
				send(added(4), w.frame("MODIFIED", w.single(makeConfigMap(0))), w.bookmark("9", nil), added(5), w.frame("DELETED", w.single(makeConfigMap(1))))
				send(w.bookmark("10", map[string]string{metav1.InitialEventsAnnotationKey: "true"}), added(6))
				want := []string{"cm-0", "cm-1", "cm-2", "cm-3", "cm-4", "change of cm-0", "bookmark", "cm-5", "change of cm-1", "end", "cm-6"}
				if !slices.Equal(got, want) {
					t.Errorf("handed on %q, not %q", got, want)
				}
				_ = sender.Close()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
