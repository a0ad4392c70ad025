package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// reads are what is read from mirrors of a hundredth, a tenth and all of the
// pods: 1,000, 10,000 and 100,000.
var reads = line{
	name: "reads",
	what: "Reads of %d pods from memory",
	size: 100_000, quick: 1000,
	setup: serveReads,
	claims: []claim{
		{9, "list by label, 10 of 100,000, µs", "10 of all: µs", "tidings", "", atMost(40)},
		{9, "list by label, 100 of 100,000, µs", "100 of all: µs", "tidings", "", target{}},
		{9, "list by label, 1,000 of 100,000, µs", "1000 of all: µs", "tidings", "", target{}},
		{9, "list by label, 10 of 10,000, µs", "10 of 1/10: µs", "tidings", "", target{}},
		{9, "list by label, 10 of 1,000, µs", "10 of 1/100: µs", "tidings", "", target{}},
		{9, "list by label, 10 of 100,000, times as long as 10 of 1,000", "10 of all / 10 of 1/100", "tidings", "", atMost(3)},
		{9, "allocations of that list", "10 of all: allocs", "tidings", "", target{}},
		{9, "bytes of that list", "10 of all: bytes", "tidings", "", target{}},
		{10, "list a namespace, 1,000 of 100,000, µs", "namespace: µs", "tidings", "", timesAtMost(0.5)},
		{10, "get one of 100,000, µs", "get: µs", "tidings", "", timesAtMost(1)},
		{5, "compact, decoded on read: get one of 100,000, µs", "get: µs", "tidings, compact", "", target{}},
		{5, "compact, decoded on read: list by label, 10 of 100,000, µs", "10 of all: µs", "tidings, compact", "", target{}},
		{5, "compact, decoded on read: list a namespace, 1,000 of 100,000, µs", "namespace: µs", "tidings, compact", "", target{}},
	},
	sides: []side{
		{"client-go", func(ctx context.Context, size int) (figures, error) {
			return readAll(size, func(address string) (reader, error) {
				pods, start := clientGoReplay(ctx, address)
				return lister{listers.NewPodLister(pods.GetIndexer())}, start()
			})
		}},
		{"tidings, drop-in", func(ctx context.Context, size int) (figures, error) {
			return readAll(size, func(address string) (reader, error) {
				pods, start := dropInReplay(ctx, address)
				return lister{listers.NewPodLister(pods.GetIndexer())}, start()
			})
		}},
		{"tidings", mirrored()},
		{"tidings, compact", mirrored(informer.Compact())},
	},
}

// mirrored reads from the library's informers.
func mirrored(opts ...informer.Option) func(context.Context, int) (figures, error) {
	return func(ctx context.Context, size int) (figures, error) {
		return readAll(size, func(address string) (reader, error) {
			pods, err := tidingsReplay[*corev1.Pod](address, opts...)
			if err != nil {
				return nil, err
			}
			return mirror{pods}, pods.Start(ctx)
		})
	}
}

// serveReads starts a server for each size of mirror. They serve real pods that
// are given the labels and the namespaces that reads ask for.
func serveReads(_ context.Context, size int) (env []string, teardown func() error, err error) {
	var stops []func() error
	teardown = func() error {
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop())
		}
		return errors.Join(errs...)
	}
	for _, part := range readParts {
		address, stop, err := startReplay(readable(size/part), false)
		if err != nil {
			return nil, nil, errors.Join(err, teardown())
		}
		stops = append(stops, stop)
		env = append(env, fmt.Sprintf("READS_%d=%s", part, address))
	}
	return env, teardown, nil
}

// readParts are what the number of pods is divided by.
var readParts = []int{100, 10, 1}

// readable returns n pods of which each shares the value of label of-10 with 10
// others, that of of-100 with 100 others, and so on, from all over the store.
// Namespaces have 1,000 pods each, and no two pods are of one name.
func readable(n int) []corev1.Pod {
	pods := samplepods.Clone(n, 1)
	for i := range pods {
		for _, answer := range answers {
			pods[i].Labels[answerLabel(answer)] = strconv.Itoa(i % max(n/answer, 1))
		}
		pods[i].Namespace = fmt.Sprintf("ns-%03d", i/1000)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { // etcd's order
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return pods
}

var answers = []int{10, 100, 1000}

func answerLabel(answer int) string { return "of-" + strconv.Itoa(answer) }

// answerSelector asks for one answer.
func answerSelector(answer, value int) labels.Selector {
	return labels.SelectorFromSet(labels.Set{answerLabel(answer): strconv.Itoa(value)})
}

// reader is what both sides are asked.
type reader interface {
	byLabel(labels.Selector) int
	namespace(string) []*corev1.Pod
	get(namespace, name string) bool
}

// lister is client-go's way to read.
type lister struct{ pods listers.PodLister }

func (l lister) byLabel(s labels.Selector) int {
	found, _ := l.pods.List(s) // it has no errors to give
	return len(found)
}

func (l lister) namespace(ns string) []*corev1.Pod {
	found, _ := l.pods.Pods(ns).List(labels.Everything())
	return found
}

func (l lister) get(ns, name string) bool {
	_, err := l.pods.Pods(ns).Get(name)
	return err == nil
}

// mirror is the library's way.
type mirror struct {
	pods *informer.Informer[*corev1.Pod]
}

func (m mirror) byLabel(s labels.Selector) int { return len(m.pods.List(informer.Query{Labels: s})) }

func (m mirror) namespace(ns string) []*corev1.Pod {
	return m.pods.List(informer.Query{Namespace: ns})
}

func (m mirror) get(ns, name string) bool {
	_, ok := m.pods.Get(ns, name)
	return ok
}

// readAll times the reads of a side from mirrors of every size.
func readAll(size int, open func(address string) (reader, error)) (figures, error) {
	out := figures{}
	for _, part := range readParts {
		r, err := open(os.Getenv(fmt.Sprintf("READS_%d", part)))
		if err != nil {
			return nil, err
		}
		name := "all"
		if part > 1 {
			name = fmt.Sprintf("1/%d", part)
		}
		n := size / part
		for _, answer := range answers {
			if answer > n || answer > 10 && part > 1 {
				continue
			}
			selectors := make([]labels.Selector, 16)
			for i := range selectors {
				selectors[i] = answerSelector(answer, i*7%(n/answer))
			}
			took, err := repeat(func(i int) error {
				if got := r.byLabel(selectors[i%len(selectors)]); got != answer {
					return fmt.Errorf("%d pods were found, not %d", got, answer)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			took.note(out, fmt.Sprintf("%d of %s", answer, name))
		}
		if part > 1 {
			continue
		}
		namespaces := max(n/1000, 1)
		took, err := repeat(func(i int) error {
			if got := len(r.namespace(fmt.Sprintf("ns-%03d", i%namespaces))); got != n/namespaces {
				return fmt.Errorf("a namespace has %d pods, not %d", got, n/namespaces)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		took.note(out, "namespace")
		// From all over the store, a thousand of them.
		var some []*corev1.Pod
		for i := range namespaces {
			some = append(some, r.namespace(fmt.Sprintf("ns-%03d", i))[:max(1000/namespaces, 1)]...)
		}
		took, err = repeat(func(i int) error {
			if p := some[i%len(some)]; !r.get(p.Namespace, p.Name) {
				return fmt.Errorf("%s/%s is not there", p.Namespace, p.Name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		took.note(out, "get")
	}
	out["10 of all / 10 of 1/100"] = out["10 of all: µs"] / out["10 of 1/100: µs"]
	return out, nil
}

// cost is what one call of something takes.
type cost struct{ ns, allocs, bytes float64 }

func (c cost) note(out figures, name string) {
	out[name+": µs"] = c.ns / 1000
	out[name+": allocs"] = c.allocs
	out[name+": bytes"] = c.bytes
}

// repeat calls do, with the number of the call, for a while and at least
// ten times, after one call that does not count.
func repeat(do func(int) error) (cost, error) {
	if err := do(0); err != nil {
		return cost{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	n := 0
	for batch := 10; time.Since(begun) < repeatFor; batch = min(2*batch, 10_000) {
		for range batch {
			n++
			if err := do(n); err != nil {
				return cost{}, err
			}
		}
	}
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	return cost{
		ns:     float64(took.Nanoseconds()) / float64(n),
		allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}, nil
}

const repeatFor = 150 * time.Millisecond
