package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// growth is what a store with an index by namespace takes beside the objects in
// it, as it grows a thousandfold. Objects are bare metadata, so that the peer has
// room for as many.
var growth = line{
	name: "growth",
	what: "A store that grows to %d objects",
	size: 1_000_000, quick: 10_000,
	claims: []claim{
		{14, "store of 1,000,000: heap beside the objects, B each", "all: heap B/object", "tidings", "", target{}},
		{14, "the same, times that of 1,000", "all / 1/1000: heap B/object", "tidings", "", atMost(1.2)},
		{14, "get one of 1,000,000, ns", "all: get ns", "tidings", "", target{}},
		{14, "the same, times as long as of 100,000", "all / 1/10: get ns", "tidings", "", atMost(2)},
		{14, "insert one into 1,000,000, ns", "all: insert ns", "tidings", "", target{}},
		{14, "the same, times as long as into 100,000", "all / 1/10: insert ns", "tidings", "", atMost(2)},
	},
	sides: []side{
		{"client-go", func(_ context.Context, size int) (figures, error) { return grow(size, growClientGo) }},
		{"tidings", func(_ context.Context, size int) (figures, error) { return grow(size, growStore) }},
	},
}

type meta = metav1.PartialObjectMetadata

// grower is a store that takes objects in.
type grower struct {
	insert func(*meta)
	get    func(namespace, name string) bool
}

func growClientGo() grower {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	return grower{
		insert: func(m *meta) { _ = store.Add(m) }, // they have keys
		get: func(namespace, name string) bool {
			_, ok, _ := store.GetByKey(namespace + "/" + name)
			return ok
		},
	}
}

func growStore() grower {
	store := indexer.New(indexer.Options[*meta]{})
	_ = store.AddIndex("namespace", func(values []string, m *meta) []string { return append(values, m.Namespace) }) // the name is free
	return grower{
		insert: func(m *meta) { store.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: m}}) },
		get: func(namespace, name string) bool {
			_, ok := store.Get(object.Key(namespace, name))
			return ok
		},
	}
}

// growParts are what the number of objects is divided by.
var growParts = []int{1000, 100, 10, 1}

// grow fills a store for each size and measures the last hundredth of the
// inserts, each of which is seen by readers when it returns.
func grow(size int, open func() grower) (figures, error) {
	objects := make([]*meta, size)
	for i := range objects {
		// In an order that is none, as objects are created.
		j := i * 7919 % size
		objects[i] = &meta{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(j/1000), Name: "pod-" + strconv.Itoa(j), UID: types.UID(strconv.Itoa(j)), ResourceVersion: strconv.Itoa(i + 1),
		}}
	}
	out := figures{}
	for _, part := range growParts {
		n := size / part
		name := "all"
		if part > 1 {
			name = fmt.Sprintf("1/%d", part)
		}
		before := heap()
		store := open()
		last := n - max(n/100, 1)
		for _, o := range objects[:last] {
			store.insert(o)
		}
		runtime.GC()
		begun := time.Now()
		for _, o := range objects[last:n] {
			store.insert(o)
		}
		out[name+": insert ns"] = float64(time.Since(begun).Nanoseconds()) / float64(n-last)
		out[name+": heap B/object"] = (float64(heap()) - float64(before)) / float64(n)
		took, err := repeat(func(i int) error {
			if o := objects[i*7907%n]; !store.get(o.Namespace, o.Name) {
				return fmt.Errorf("%s is not there", o.Name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out[name+": get ns"] = took.ns
		runtime.KeepAlive(store)
	}
	for _, figure := range []string{"insert ns", "heap B/object", "get ns"} {
		for _, part := range []int{10, 1000} {
			out[fmt.Sprintf("all / 1/%d: %s", part, figure)] = out["all: "+figure] / out[fmt.Sprintf("1/%d: %s", part, figure)]
		}
	}
	runtime.KeepAlive(objects)
	return out, nil
}
