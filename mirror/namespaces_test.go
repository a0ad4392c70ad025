package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/demo"
	"github.com/tidings-io/tidings/mirror"
)

// A list of some namespaces is the list of all without the others, in pages and
// whole, whatever the namespaces are called.
func TestListsOfSomeNamespaces(t *testing.T) {
	inBubble(t, demo.Options{}, mirror.Options{}, func(r *rig) {
		rnd := rand.New(rand.NewPCG(5, 6))
		all := map[string]bool{}
		// In the order of names, a comes before a-b; in that of keys behind it.
		for _, ns := range []string{"a", "a-b", "a-b-c", "a0", "ab", "b", "default"} {
			for i := range rnd.IntN(6) {
				r.set(ns, fmt.Sprintf("n-%d", i), "1", fmt.Sprintf("odd=%v", i%2 == 1))
				all[ns] = true
			}
		}
		q := r.query("cm")
		held, more, err := r.mirror.Namespaces(r.ctx, q, 100)
		r.must(err)
		if want := slices.Sorted(maps.Keys(all)); !slices.Equal(held, want) || more {
			t.Fatalf("objects are said to be in %v, and in %v they are", held, want)
		}
		some, more, err := r.mirror.Namespaces(r.ctx, q, 2)
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
			q.Namespaces = []string{}
			for _, ns := range append(slices.Clone(held), "none") {
				if rnd.IntN(2) == 0 {
					q.Namespaces = append(q.Namespaces, ns)
				}
			}
			slices.Sort(q.Namespaces)
			want := slices.DeleteFunc(every, func(line string) bool {
				ns, _, _ := strings.Cut(line, "/")
				return !slices.Contains(q.Namespaces, ns)
			})
			q.Limit = int64(rnd.IntN(4))
			got := []string{}
			for {
				page, meta := r.list(q)
				if got = append(got, page...); meta.Continue == "" {
					break
				}
				if left := int64(len(want) - len(got)); q.Labels == nil && q.Fields == nil && meta.Remaining != left {
					t.Fatalf("%d are said to remain of %d", meta.Remaining, left)
				}
				q.Continue = meta.Continue
				other := q
				other.Namespaces = append(slices.Clone(q.Namespaces), "zzz")
				r.refuse(r.listErr(other), mirror.Expired)
			}
			same(t, fmt.Sprint(q.Namespaces, " by ", q.Limit), got, want)
		}
	})
}

func TestWatchOfSomeNamespaces(t *testing.T) {
	inBubble(t, demo.Options{}, mirror.Options{}, func(r *rig) {
		first := r.set("a", "one", "1")
		r.set("a-b", "one", "1")
		q := r.query("cm")
		q.Namespaces = []string{"a", "c"}
		w := r.watch(q, "")
		w.expect("ADDED a/one@"+first, "SYNCED")
		r.set("a-b", "two", "1")
		second := r.set("c", "two", "1")
		w.expect("ADDED c/two@" + second)
		w.stop()
		for name, change := range map[string]func(*mirror.Query){
			"a namespace as well": func(q *mirror.Query) { q.Namespace = "a" },
			"a name":              func(q *mirror.Query) { q.Name = "one" },
			"live":                func(q *mirror.Query) { q.Source = mirror.Live },
			"unsorted":            func(q *mirror.Query) { q.Namespaces = []string{"c", "a"} },
			"not namespaced":      func(q *mirror.Query) { q.Target = r.query("nodes").Target },
		} {
			wrong := q
			change(&wrong)
			if mirror.ReasonOf(r.listErr(wrong)) != mirror.Invalid {
				t.Errorf("%s: %v", name, r.listErr(wrong))
			}
		}
	})
}

// What a cluster was asked is of no use for another that has taken its name.
func TestResolvesInTheClusterThatIsMeant(t *testing.T) {
	inBubble(t, demo.Options{}, mirror.Options{}, func(r *rig) {
		c, err := r.mirror.Cluster("")
		r.must(err)
		if !r.mirror.Uses(c) {
			t.Error("the cluster is said not to be in use")
		}
		ctx := mirror.WithCluster(r.ctx, c)
		_, err = r.mirror.Resolve(ctx, "", "cm")
		r.must(err)
		r.must(r.mirror.Set(context.Background(), map[string]*rest.Config{c.Name(): c.Config()}))
		if r.mirror.Uses(c) {
			t.Error("a cluster that was replaced is said to be in use")
		}
		_, err = r.mirror.Resolve(ctx, "", "cm")
		r.refuse(err, mirror.Ended)
		_, err = r.mirror.Resolve(r.ctx, "", "cm")
		r.must(err)
	})
}
