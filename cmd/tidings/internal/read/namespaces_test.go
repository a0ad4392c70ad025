package read_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A list of some namespaces is the list of all namespaces without the others, with and
// without pages, whatever the names of the namespaces.
func TestListsOfSomeNamespaces(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		rnd := rand.New(rand.NewPCG(5, 6))
		all := map[string]bool{}
		// By name, a is before a-b; by key, after it.
		for _, ns := range []string{"a", "a-b", "a-b-c", "a0", "ab", "b", "default"} {
			for i := range rnd.IntN(6) {
				r.set(ns, fmt.Sprintf("n-%d", i), "1", fmt.Sprintf("odd=%v", i%2 == 1))
				all[ns] = true
			}
		}
		q := r.query("cm")
		lists, err := r.bind(q, read.List)
		r.must(err)
		held, more, err := r.reader.Namespaces(r.ctx, lists, 100)
		r.must(err)
		if want := slices.Sorted(maps.Keys(all)); !slices.Equal(held, want) || more {
			t.Fatalf("got namespaces %v, want %v", held, want)
		}
		some, more, err := r.reader.Namespaces(r.ctx, lists, 2)
		r.must(err)
		if len(some) != 2 || !more {
			t.Errorf("two of %v: %v %v", held, some, more)
		}
		for round := range 200 {
			q := r.query("cm")
			if round%3 == 0 {
				q.Labels = selector(t, "odd=true")
			}
			if round%5 == 0 {
				q.Fields = fieldSelector(t, "metadata.namespace="+held[rnd.IntN(len(held))])
			}
			every, _ := r.list(q)
			namespaces := []string{}
			for _, ns := range append(slices.Clone(held), "none") {
				if rnd.IntN(2) == 0 {
					namespaces = append(namespaces, ns)
				}
			}
			slices.Sort(namespaces)
			want := slices.DeleteFunc(every, func(line string) bool {
				ns, _, _ := strings.Cut(line, "/")
				return !slices.Contains(namespaces, ns)
			})
			q.Limit = int64(rnd.IntN(4))
			got := []string{}
			for {
				page, meta, err := r.listWithin(q, namespaces)
				r.must(err)
				if got = append(got, page...); meta.Continue == "" {
					break
				}
				if left := int64(len(want) - len(got)); q.Labels == nil && q.Fields == nil && meta.Remaining != left {
					t.Fatalf("%d are said to remain of %d", meta.Remaining, left)
				}
				q.Continue = meta.Continue
				_, _, err = r.listWithin(q, append(slices.Clone(namespaces), "zzz"))
				r.refuse(err, mirror.Expired)
			}
			same(t, fmt.Sprint(namespaces, " by ", q.Limit), got, want)
		}
	})
}

// listWithin lists the objects in some namespaces.
func (r *rig) listWithin(ask read.Params, namespaces []string) ([]string, read.ListMeta, error) {
	q, err := r.bind(ask, read.List)
	if err == nil {
		q, err = q.Within(namespaces)
	}
	if err != nil {
		return nil, read.ListMeta{}, err
	}
	return r.listedBy(q)
}

func TestWatchOfSomeNamespaces(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		first := r.set("a", "one", "1")
		r.set("a-b", "one", "1")
		q, err := r.bind(r.query("cm"), read.Watch)
		r.must(err)
		q, err = q.Within([]string{"a", "c"})
		r.must(err)
		w := r.watchBy(func(ctx context.Context) (read.Events, error) { return r.reader.Watch(ctx, q, "") })
		w.expect("ADDED a/one@"+first, "SYNCED")
		r.set("a-b", "two", "1")
		second := r.set("c", "two", "1")
		w.expect("ADDED c/two@" + second)
		w.stop()
		for name, change := range map[string]func(*read.Params, *[]string){
			"a namespace as well": func(q *read.Params, _ *[]string) { q.Namespace = "a" },
			"live":                func(q *read.Params, _ *[]string) { q.Source = read.Live },
			"unsorted":            func(_ *read.Params, namespaces *[]string) { *namespaces = []string{"c", "a"} },
			"not namespaced":      func(q *read.Params, _ *[]string) { *q = r.query("nodes") },
		} {
			wrong, namespaces := r.query("cm"), []string{"a", "c"}
			change(&wrong, &namespaces)
			if _, _, err := r.listWithin(wrong, namespaces); mirror.ReasonOf(err) != mirror.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A query for a cluster is not valid for another one with the same name.
func TestReadsTheClusterThatIsMeant(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		q, err := r.bind(r.query("cm"), read.List)
		r.must(err)
		c := q.Params().Cluster
		if !r.mirror.Uses(c.Connection()) {
			t.Error("the cluster is said not to be in use")
		}
		_, _, err = r.listedBy(q)
		r.must(err)
		r.must(r.mirror.Set(r.ctx, map[string]*rest.Config{c.Name(): c.Connection().Config()}))
		if r.mirror.Uses(c.Connection()) {
			t.Error("a cluster that was replaced is said to be in use")
		}
		_, _, err = r.listedBy(q)
		r.refuse(err, mirror.Ended)
		r.must(r.listErr(r.query("cm")))
	})
}
