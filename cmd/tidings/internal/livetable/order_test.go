package livetable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
)

// someRows are rows like those of pods.
func someRows(n int) map[string]*row {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make(map[string]*row, n)
	for i := range n {
		namespace, name := fmt.Sprintf("team-%d", i%40), fmt.Sprintf("Web-%d-%08x-%05x", i%700, rng.Uint32(), i)
		restarts := any(fmt.Sprint(rng.IntN(4)))
		if i%10 == 0 {
			restarts = table.Elapsed{Since: time.Unix(1_700_000_000+rng.Int64N(1e6), 0), Before: fmt.Sprint(1+rng.IntN(30)) + " (", After: " ago)"}
		}
		node := any(fmt.Sprintf("node-%d", rng.IntN(500)))
		if i%50 == 0 {
			node = nil
		}
		r := &row{key: namespace + "/" + name, packed: pack([]any{namespace, name, "1/1", []string{"Running", "Pending", "CrashLoopBackOff"}[min(rng.IntN(30), 2)], restarts,
			table.Elapsed{Since: time.Unix(1_700_000_000+rng.Int64N(1e6), 0)}, node, int64(rng.IntN(9))})}
		out[r.key] = r
	}
	return out
}

// Orders have the same rows, in the same order and with the same counts, whatever they are
// made from.
func TestOrdersAreTheSameHoweverTheyAreMade(t *testing.T) {
	rows := someRows(3000)
	keys := newOrder(sorting{column: byKey}, 3, rows, nil, nil)
	for column := missing; column < 8; column++ {
		for _, descending := range []bool{false, true} {
			for _, filter := range []string{"", "7 !team-1", "running", "nothing has this"} {
				by := sorting{filter: filter, shown: "11111111", column: column, descending: descending}
				o := &order{sorting: by}
				var want []string
				plain := newOrder(by, 3, map[string]*row{}, nil, nil)
				var items []item
				for _, r := range rows {
					if plain.matches(r) {
						items = append(items, plain.item(r))
					}
				}
				slices.SortFunc(items, o.compare)
				for _, i := range items {
					want = append(want, i.row.key)
				}
				unfiltered := by
				unfiltered.filter = ""
				for how, made := range map[string]*order{
					"rows": newOrder(by, 3, rows, nil, nil), "keys": newOrder(by, 3, rows, nil, keys),
					"base": newOrder(by, 3, rows, newOrder(unfiltered, 3, rows, nil, nil), nil),
				} {
					var got []string
					made.tree.Scan(func(i item) bool { got = append(got, i.row.key); return true })
					if !slices.Equal(got, want) {
						t.Fatalf("column %d, descending %v, filter %q, from %s: %d rows, and they are not those or not in the order of the %d that are wanted", column, descending, filter, how, len(got), len(want))
					}
					sum := 0
					for _, n := range made.counts {
						sum += n
					}
					if sum != len(want) {
						t.Errorf("column %d, filter %q, from %s: %d rows are counted of %d", column, filter, how, sum, len(want))
					}
				}
			}
		}
	}
}

// BenchmarkOrder makes orders of 100,000 rows.
func BenchmarkOrder(b *testing.B) {
	rows := someRows(100_000)
	keys := newOrder(sorting{column: byKey}, 3, rows, nil, nil)
	for _, column := range []int{byKey, 0, 1, 3, 4, 5, 6} {
		b.Run(fmt.Sprint("sort by ", column), func(b *testing.B) {
			for b.Loop() {
				newOrder(sorting{column: column}, 3, rows, nil, keys)
			}
		})
	}
	for _, filter := range []string{"1", "run", "nothing-has-this"} {
		b.Run("filter "+filter, func(b *testing.B) {
			for b.Loop() {
				newOrder(sorting{column: byKey, filter: filter, shown: "11111100"}, 3, rows, keys, nil)
			}
		})
	}
}
