package livetable_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// several adds clusters to a rig, and returns the rig of each.
func (r *rig) several(names ...string) map[string]*rig {
	r.Helper()
	out := map[string]*rig{}
	configs := map[string]*rest.Config{}
	for _, name := range names {
		one := *r
		one.cluster, one.name = fakeapi.New(fakeapi.Options{}), name
		config, stop := fakeapi.InProcess(one.cluster)
		r.Cleanup(stop)
		out[name], configs[name] = &one, config
	}
	r.must(r.mirror.Set(r.ctx, configs))
	return out
}

// join opens a window of several clusters.
func (r *rig) join(clusters map[string]*rig, p livetable.Params) *client {
	r.Helper()
	var parts []livetable.Part
	for name, one := range clusters {
		held, err := r.tables.Hold(r.ctx, one.query(nil), p)
		r.must(err)
		r.Cleanup(held.Release)
		parts = append(parts, livetable.Part{Cluster: name, Held: held})
	}
	slices.SortFunc(parts, func(a, b livetable.Part) int { return strings.Compare(a.Cluster, b.Cluster) })
	w, err := livetable.Join(parts, p)
	r.must(err)
	return &client{rig: r, window: w, rows: map[string][]any{}}
}

// A window of several clusters has, at any place and in any order, the rows that all of
// them have together.
func TestJoinedTablesAreOne(t *testing.T) {
	for seed := range uint64(30) {
		inBubble(t, livetable.Options{}, func(r *rig) {
			rng := rand.New(rand.NewPCG(seed, 1))
			names := []string{"a", "b/c", "d"}[:1+rng.IntN(3)]
			clusters := r.several(names...)
			type one struct{ cluster, name, phase string }
			all := map[string]one{}
			change := func() {
				c, name := names[rng.IntN(len(names))], fmt.Sprint("p-", rng.IntN(40))
				if rng.IntN(3) == 0 {
					_ = clusters[c].cluster.Delete(pods, "default", name) // may not exist
					delete(all, c+name)
					return
				}
				phase := []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}[rng.IntN(3)]
				clusters[c].put("default", name, phase)
				all[c+name] = one{c, name, string(phase)}
			}
			for range rng.IntN(150) {
				change()
			}
			p := livetable.Params{First: rng.IntN(40), Count: 1 + rng.IntN(30), Descending: rng.IntN(2) == 0, Sort: []string{"", "Cluster", "Status", "Node"}[rng.IntN(4)], Filter: []string{"", "run", "!a", "d"}[rng.IntN(4)]}
			c := r.join(clusters, p)
			defer c.window.Close()
			for range 5 {
				for range rng.IntN(30) {
					change()
				}
				var want []one
				for _, o := range all {
					word, not := strings.CutPrefix(p.Filter, "!")
					if strings.Contains(strings.ToLower(o.cluster+" default "+o.name+" 0/0 "+o.phase), word) != not {
						want = append(want, o)
					}
				}
				slices.SortFunc(want, func(x, y one) int {
					main, key := 0, strings.Compare(x.name, y.name)
					switch p.Sort {
					case "":
						main = key
					case "Cluster":
						main = strings.Compare(x.cluster, y.cluster)
					case "Status":
						main = strings.Compare(x.phase, y.phase)
					}
					if p.Descending {
						main = -main
					}
					return cmp.Or(main, key, strings.Compare(x.cluster, y.cluster))
				})
				want = want[min(p.First, len(want)):min(p.First+p.Count, len(want))]
				got := func() (out []one) {
					for _, key := range c.Keys {
						row := c.rows[key]
						out = append(out, one{row[0].(string), row[2].(string), row[4].(string)})
					}
					return out
				}
				for tries := 0; !c.Synced || !slices.Equal(got(), want); tries++ {
					if c.next(); tries > 30 {
						t.Fatalf("%+v:\n got %v\nwant %v", p, got(), want)
					}
				}
			}
		})
	}
}

// Columns of clusters of other versions are joined by their names, and a cluster without
// a table does not keep the others from being shown.
func TestJoinWithoutSome(t *testing.T) {
	inBubble(t, livetable.Options{}, func(r *rig) {
		clusters := r.several("a", "b")
		clusters["a"].put("default", "x", corev1.PodRunning)
		p := livetable.Params{Count: 10, Sort: "Added Later", Columns: []string{"Name", "cluster", "Added Later", ".spec.nodeName"}}
		held, err := r.tables.Hold(r.ctx, clusters["a"].query(nil), p)
		r.must(err)
		defer held.Release()
		parts := []livetable.Part{{Cluster: "a", Held: held}, {Cluster: "b", Problem: map[string]string{"reason": "Forbidden"}}}
		w, err := livetable.Join(parts, p)
		r.must(err)
		c := &client{rig: r, window: w, rows: map[string][]any{}}
		defer w.Close()
		c.next()
		if !slices.Equal(c.Keys, []string{"a/default/x"}) || fmt.Sprint(c.rows[c.Keys[0]]) != "[x a <nil> <nil>]" || len(c.Clusters) != 2 || c.Clusters[1].Problem.Reason != "Forbidden" || c.Clusters[0].Upstream.Phase != "watching" {
			t.Errorf("%q: %v, %+v", c.Keys, c.rows, c.Clusters)
		}
		if _, err := livetable.Join(parts[:1], p); mirror.ReasonOf(err) != mirror.Invalid {
			t.Errorf("a column that no cluster has: %v", err)
		}
		w, err = livetable.Join(parts[1:], p)
		r.must(err)
		c = &client{rig: r, window: w, rows: map[string][]any{}}
		defer w.Close()
		if c.next(); len(c.Keys) > 0 || len(c.Columns) != 4 {
			t.Errorf("%+v", c)
		}
	})
}
