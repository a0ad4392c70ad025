package indexer_test

import (
	"encoding/json"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// BenchmarkOwners measures what the index of owners costs, in memory and for an update of
// one of 100,000 pods as the program keeps them, applied in a batch of 100. Two stores,
// one with the index, take turns, so that other work on the machine is borne by both. Of
// the times of batches, the median counts.
func BenchmarkOwners(b *testing.B) {
	const pods, batch = 100_000, 100
	text := make([]string, 0, pods)
	for p := range samplepods.All(pods, 1) {
		p.ManagedFields, p.ResourceVersion = nil, "VERSION"
		content, err := json.Marshal(p)
		if err != nil {
			b.Fatal(err)
		}
		text = append(text, string(content))
	}
	type store struct {
		name   string
		decode func(at, version int) *codec.Raw
		*indexer.Indexer[*codec.Raw]
		size  int64
		times []float64
	}
	stores := []*store{{name: "not-indexed"}, {name: "indexed"}}
	for i, s := range stores {
		opts := indexer.Options[*codec.Raw]{Size: (*codec.Raw).Size}
		if i == 1 {
			opts.Owners = func(dst []uint64, o *codec.Raw) []uint64 { return o.AppendOwners(dst) }
		}
		c, err := codec.For[*codec.Raw](schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, codec.Options{Pack: codec.NewPacker(), Owners: i == 1})
		if err != nil {
			b.Fatal(err)
		}
		s.decode = func(at, version int) *codec.Raw {
			o, err := c.Decode(codec.JSON, []byte(strings.Replace(text[at], "VERSION", strconv.Itoa(version), 1)))
			if err != nil {
				b.Fatal(err)
			}
			return o
		}
		before := heap()
		s.Indexer = indexer.New(opts)
		list := &delta.List[*codec.Raw]{ResourceVersion: "1"}
		for at := range text {
			list.Items = append(list.Items, s.decode(at, 1))
		}
		s.Apply([]delta.Delta[*codec.Raw]{{Type: delta.Replaced, List: list}})
		list = nil
		s.size = heap() - before
	}
	version, at := 1, 0
	b.Run("update", func(b *testing.B) {
		for _, s := range stores {
			s.times = s.times[:0]
		}
		deltas := make([]delta.Delta[*codec.Raw], batch)
		for n := 0; n < b.N; n += batch {
			begin := at
			for _, s := range stores {
				at = begin
				for i := range deltas {
					version, at = version+1, (at+7919)%pods
					deltas[i] = delta.Delta[*codec.Raw]{Type: delta.Updated, Object: s.decode(at, version)}
				}
				begun := time.Now()
				s.Apply(deltas)
				s.times = append(s.times, float64(time.Since(begun).Nanoseconds())/batch)
			}
			slices.Reverse(stores)
		}
		for _, s := range stores {
			slices.Sort(s.times)
			b.ReportMetric(s.times[len(s.times)/2], s.name+"-ns/op")
			b.ReportMetric(float64(s.size)/pods, s.name+"-B/object")
		}
	})
	runtime.KeepAlive(stores)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
