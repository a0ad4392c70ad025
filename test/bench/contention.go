package main

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
)

// contention is what readers and the one writer of a store of decoded pods do
// to each other. Each write is one object, seen by readers when it returns. The
// first two sides are one interface, cache.Indexer; the others are the store that
// the library's informers write to and read from: readers who let it append to
// memory of their own, as Informer.Append does, and those who have a new list made
// each time.
var contention = line{
	name: "contention",
	what: "Readers and a saturating writer of a store of %d decoded pods",
	size: 100_000, quick: 10_000,
	claims: slices.Concat(
		contentionClaims("tidings", "; the library", true), contentionClaims("tidings, new lists", "; the library, a new list each time", false),
		contentionClaims("tidings, drop-in", "; the drop-in", true),
	),
	sides: []side{
		{"client-go", func(ctx context.Context, size int) (figures, error) {
			return contend(size, openIndexer(cache.NewIndexer, size))
		}},
		{"tidings, drop-in", func(ctx context.Context, size int) (figures, error) {
			return contend(size, openIndexer(clientgo.NewIndexer, size))
		}},
		{"tidings", func(ctx context.Context, size int) (figures, error) { return contend(size, openStore(size, true)) }},
		{"tidings, new lists", func(ctx context.Context, size int) (figures, error) { return contend(size, openStore(size, false)) }},
	},
}

// contentionClaims are those of a side; what is not aimed at is measured all the same.
func contentionClaims(side, who string, aimed bool) []claim {
	all := []claim{
		{11, "get p99 while a writer is saturating, µs" + who, "get p99 µs", side, "", atMost(2)},
		{11, "write rate while 8 readers list 10 of 100,000 by selector, of that beside 8 that only burn CPU" + who, "writes kept", side, "", atLeast(0.9)},
		{12, "writes/s while 4 readers list all of 100,000" + who, "4 readers: writes/s", side, "", timesAtLeast(200)},
		{12, "lists/s of those 4" + who, "4 readers: lists/s", side, "", timesAtLeast(1)},
		{12, "writes/s while 10 readers list all of 100,000" + who, "10 readers: writes/s", side, "", timesAtLeast(200)},
		{12, "lists/s of those 10" + who, "10 readers: lists/s", side, "", timesAtLeast(1)},
	}
	for i := range all {
		if !aimed {
			all[i].target = target{}
		}
	}
	return all
}

// contender is a store that is written to by one and read by many.
type contender struct {
	write func(*corev1.Pod)
	get   func(namespace, name string) bool
	// reader makes what one reader lists with, and says how many it has found.
	reader func() (list func() int, selected func(labels.Selector) int)
}

// barePod is pod i as of a version: little else than what stores look at.
func barePod(i, n, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: bareNamespace(i), Name: bareName(i), UID: types.UID(strconv.Itoa(i)), ResourceVersion: strconv.Itoa(version),
		Labels: map[string]string{answerLabel(10): strconv.Itoa(i % (n / 10))},
	}}
}

func bareNamespace(i int) string { return "ns-" + strconv.Itoa(i%100) }
func bareName(i int) string      { return "pod-" + strconv.Itoa(i) }

// openIndexer makes a store of client-go's interface, read by client-go's lister.
func openIndexer(create func(cache.KeyFunc, cache.Indexers, ...cache.StoreOption) cache.Indexer, n int) contender {
	store := create(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	all := make([]any, n)
	for i := range all {
		all[i] = barePod(i, n, i+1)
	}
	_ = store.Replace(all, strconv.Itoa(n)) // pods have keys
	pods := listers.NewPodLister(store)
	return contender{
		write: func(p *corev1.Pod) { _ = store.Update(p) },
		get: func(namespace, name string) bool {
			_, err := pods.Pods(namespace).Get(name)
			return err == nil
		},
		reader: func() (func() int, func(labels.Selector) int) {
			return func() int { return len(store.List()) }, lister{pods}.byLabel
		},
	}
}

// openStore makes a store as informers have it, with the index that a first
// query by a label makes. Its readers use their memory again, or do not.
func openStore(n int, again bool) contender {
	store := indexer.New(indexer.Options[informer.Object]{})
	all := make([]informer.Object, n)
	for i := range all {
		all[i] = barePod(i, n, i+1)
	}
	store.Apply([]delta.Delta[informer.Object]{{Type: delta.Replaced, List: &delta.List[informer.Object]{Items: all, ResourceVersion: strconv.Itoa(n)}}})
	label := answerLabel(10)
	_ = store.AddIndex(label, func(values []string, o informer.Object) []string { return append(values, o.GetLabels()[label]) }) // the name is free
	return contender{
		write: func(p *corev1.Pod) { store.Apply([]delta.Delta[informer.Object]{{Type: delta.Updated, Object: p}}) },
		get: func(namespace, name string) bool {
			_, ok := store.GetNamed(namespace, name)
			return ok
		},
		reader: func() (func() int, func(labels.Selector) int) {
			var own []*corev1.Pod
			list := func() int {
				view := store.Pin()
				defer view.Release()
				into := own[:0]
				if !again {
					into = make([]*corev1.Pod, 0, view.Len())
				}
				for w := range view.Windows("", "") {
					into = appendPods(into, w)
				}
				own = into
				return len(own)
			}
			selected := func(s labels.Selector) int {
				view := store.Pin()
				defer view.Release()
				value, _ := s.RequiresExactMatch(label)
				into := own[:0]
				if !again {
					into = make([]*corev1.Pod, 0, view.IndexedCount(label, value, math.MaxInt))
				}
				for w := range view.IndexedWindows(label, value, "", "") {
					into = appendPods(into, w)
				}
				own = into
				return len(own)
			}
			return list, selected
		},
	}
}

// appendPods is what the library's informers do to list.
func appendPods(dst []*corev1.Pod, w indexer.Window[informer.Object]) []*corev1.Pod {
	for i := range w.Len() {
		dst = append(dst, w.At(i).(*corev1.Pod))
	}
	return dst
}

// contend lets a writer and readers at a store of n pods, again and again.
func contend(n int, store contender) (figures, error) {
	version := n
	lasts := time.Duration(n) * 15 * time.Microsecond // many turns of ten goroutines on two CPUs
	// writes is the number of writes a second while others are at work.
	writes := func(others int, worker func(n int) (work func(i int) bool)) (perSecond, worked float64, err error) {
		var ready, done sync.WaitGroup
		var stop, failed atomic.Bool
		var calls atomic.Int64
		runtime.GC() // which takes for ever beside others
		for n := range others {
			ready.Add(1)
			done.Go(func() {
				work := worker(n)
				ready.Done()
				for i := 0; !stop.Load(); i++ {
					if !work(i) {
						failed.Store(true)
						return
					}
					calls.Add(1)
				}
			})
		}
		ready.Wait()
		already := calls.Load()
		begun := time.Now()
		wrote := 0
		for ; time.Since(begun) < lasts; wrote++ {
			version++
			store.write(barePod(version%n, n, version))
		}
		took := time.Since(begun).Seconds()
		worked = float64(calls.Load()-already) / took
		stop.Store(true)
		done.Wait()
		if failed.Load() {
			err = errors.New("a reader did not find what is there")
		}
		return float64(wrote) / took, worked, err
	}

	out := figures{}
	var err error
	note := func(name string, value float64, e error) {
		out[name] = value
		err = errors.Join(err, e)
	}
	alone, _, _ := writes(0, nil)
	out["alone: writes/s"] = alone

	var waits []time.Duration
	_, _, e := writes(1, func(int) func(int) bool {
		return func(i int) bool {
			namespace, name := bareNamespace(i*7919%n), bareName(i*7919%n)
			begun := time.Now()
			ok := store.get(namespace, name)
			waits = append(waits, time.Since(begun))
			return ok
		}
	})
	if len(waits) == 0 {
		return nil, errors.New("nothing was read beside the writer")
	}
	slices.Sort(waits)
	note("get p50 µs", waits[len(waits)/2].Seconds()*1e6, e)
	out["get p99 µs"] = waits[len(waits)*99/100].Seconds() * 1e6
	waits = nil

	var burnt atomic.Uint64
	control, _, _ := writes(8, func(int) func(int) bool {
		return func(i int) bool {
			n := uint64(i)
			for range 1000 {
				n = n*6364136223846793005 + uint64(i)
			}
			if n == 0 {
				burnt.Add(n) // so that it has to be found out
			}
			return true
		}
	})
	out["8 that burn CPU: writes/s"] = control
	selectors := make([]labels.Selector, 64)
	for i := range selectors {
		selectors[i] = answerSelector(10, i*7%(n/10))
	}
	kept, lists, e := writes(8, func(worker int) func(int) bool {
		_, selected := store.reader()
		return func(i int) bool { return selected(selectors[(worker+i)%len(selectors)]) == 10 }
	})
	note("8 selecting: writes/s", kept, e)
	out["8 selecting: lists/s"] = lists
	out["writes kept"] = kept / control

	for _, readers := range []int{4, 10} {
		rate, lists, e := writes(readers, func(int) func(int) bool {
			list, _ := store.reader()
			return func(int) bool { return list() == n }
		})
		name := strconv.Itoa(readers) + " readers: "
		note(name+"writes/s", rate, e)
		out[name+"lists/s"] = lists
	}
	return out, err
}
