package read_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// inRecordedBubble is inBubble for a mirror with a history, which retains next to nothing
// itself.
func inRecordedBubble(t *testing.T, test func(*rig)) {
	t.Helper()
	restarts(t, 1, func(_ *testing.T, _ *fakeapi.Cluster, start func() *rig) {
		r := start()
		defer r.close()
		test(r)
	})
}

// A version that the mirror no longer retains is read from the history, and a watch from
// there delivers every change since, in order, before and after it has reached the present.
func TestOldVersionsAreReadFromTheHistory(t *testing.T) {
	inRecordedBubble(t, func(r *rig) {
		q := r.query("configmaps")
		r.set("default", "a", "1", "app=web")
		r.list(q)
		synctest.Wait()
		var want []string
		begin := r.set("default", "begin", "1")
		synctest.Wait()
		for i := range 50 {
			name := fmt.Sprint("c", i%5)
			kind := "MODIFIED"
			if i < 5 {
				kind = "ADDED"
			}
			want = append(want, kind+" "+name+"@"+r.set("default", name, fmt.Sprint(i), "app=web"))
			synctest.Wait()
		}
		r.delete("default", "c0")
		want = append(want, "DELETED c0@"+r.server.ResourceVersion())
		time.Sleep(time.Second) // the history has it

		if got, at := r.state(q, read.Exact, version(begin)); at != begin || len(got) != 2 {
			t.Errorf("the state at %s is %q at %s", begin, got, at)
		}
		for name, selector := range map[string]string{"all": "", "app=web": "app=web"} {
			ask := q
			ask.Labels, _ = labels.Parse(selector)
			bound, err := r.bind(ask, read.Watch)
			r.must(err)
			ctx, cancel := context.WithCancel(r.ctx)
			events, err := r.reader.Changes(ctx, bound, read.Exact, version(begin))
			r.must(err)
			var got []string
			expected := want
			last := make(chan string, 1)
			for e, err := range events {
				r.must(err)
				if e.Object == nil {
					continue
				}
				got = append(got, fmt.Sprintf("%s %s@%s", e.Type, e.Object.GetName(), e.Object.GetResourceVersion()))
				if len(got) == len(want) { // it has reached the present
					go func() {
						last <- "ADDED last@" + r.set("default", "last", "1", "app=web")
					}()
				}
				if len(got) == len(want)+1 {
					cancel()
				}
			}
			cancel()
			if expected = append(expected[:len(expected):len(expected)], <-last); strings.Join(got, "\n") != strings.Join(expected, "\n") {
				t.Errorf("%s: the watch from %s delivers\n%s\nnot\n%s", name, begin, strings.Join(got, "\n"), strings.Join(expected, "\n"))
			}
			r.delete("default", "last")
			want = append(expected, "DELETED last@"+r.server.ResourceVersion())
			synctest.Wait()
		}
	})
}

// Where changes may be missing, a watch says so.
func TestAWatchFromThePastEndsAtAGap(t *testing.T) {
	inRecordedBubble(t, func(r *rig) {
		q := r.query("configmaps")
		r.list(q)
		synctest.Wait()
		begin := r.set("default", "begin", "1")
		synctest.Wait()
		r.set("default", "before", "1")
		time.Sleep(time.Second) // the history has it
		r.server.SetDown(true)
		r.server.CloseWatches(configMaps)
		time.Sleep(5 * time.Second)
		r.set("default", "missed", "1")
		r.server.Compact()
		r.server.SetDown(false)
		time.Sleep(5 * time.Minute)
		r.set("default", "after", "1")
		r.set("default", "after", "2")
		time.Sleep(time.Second)
		bound, err := r.bind(q, read.Watch)
		r.must(err)
		events, err := r.reader.Changes(r.ctx, bound, read.Exact, version(begin))
		r.must(err)
		var got []string
		for e, err := range events {
			if err != nil {
				got = append(got, string(mirror.ReasonOf(err)))
			} else if e.Object != nil {
				got = append(got, e.Object.GetName())
			}
		}
		if fmt.Sprint(got) != "[before Expired]" {
			t.Errorf("the watch delivers %q", got)
		}
	})
}
