package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
)

// fanOut moves updates of 10,000 decoded pods through a shared informer to its
// handlers. Both sides are the same interface over the same source.
func fanOut(handlers int, target float64) line {
	through := func(name string, make func(lw cache.ListerWatcher) cache.SharedIndexInformer) side {
		return side{name, func(ctx context.Context, events int) (figures, error) { return fan(ctx, make, handlers, events) }}
	}
	claims := []claim{{1, fmt.Sprintf("events/s through an informer of 10,000 objects to handlers: %d", handlers), "events/s", "tidings, drop-in", "", timesAtLeast(target)}}
	if handlers == 16 {
		claims = append(claims,
			claim{2, "allocations an event, 16 handlers", "allocs an event", "tidings, drop-in", "", atMost(2)},
			claim{2, "bytes an event, 16 handlers", "bytes an event", "tidings, drop-in", "", atMost(200)})
	}
	return line{
		name: fmt.Sprintf("fanout%d", handlers),
		what: fmt.Sprintf("%%d updates of 10,000 decoded pods through a shared informer to %d handlers", handlers),
		size: 200_000, quick: 1000,
		claims: claims,
		sides: []side{
			through("client-go", func(lw cache.ListerWatcher) cache.SharedIndexInformer {
				return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			}),
			through("tidings, drop-in", func(lw cache.ListerWatcher) cache.SharedIndexInformer {
				return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			}),
		},
	}
}

// tape is a source that lists some pods and then plays updates of them.
type tape struct {
	pods    []corev1.Pod
	updates []watch.Event
	play    chan struct{}
}

func newTape(pods, updates int) *tape {
	t := &tape{play: make(chan struct{})}
	pod := func(i, version int) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(i%100), Name: "pod-" + strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), ResourceVersion: strconv.Itoa(version),
		}}
	}
	for i := range pods {
		t.pods = append(t.pods, pod(i, i+1))
	}
	for i := range updates {
		p := pod(i%pods, pods+i+1)
		t.updates = append(t.updates, watch.Event{Type: watch.Modified, Object: &p})
	}
	return t
}

// IsWatchListSemanticsUnSupported tells reflectors to list.
func (t *tape) IsWatchListSemanticsUnSupported() bool { return true }

func (t *tape) List(metav1.ListOptions) (apiruntime.Object, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(len(t.pods))}, Items: t.pods}, nil
}

func (t *tape) Watch(metav1.ListOptions) (watch.Interface, error) {
	ch := make(chan watch.Event, 100)
	go func() {
		<-t.play
		for _, e := range t.updates {
			ch <- e
		}
	}()
	return watch.NewProxyWatcher(ch), nil
}

// fan runs the tape past some handlers and measures from the first update to
// the last of them that has come to the end.
func fan(ctx context.Context, make func(cache.ListerWatcher) cache.SharedIndexInformer, handlers, events int) (figures, error) {
	t := newTape(10_000, events)
	inf := make(t)
	last := strconv.Itoa(10_000 + events)
	var told sync.WaitGroup
	for range handlers {
		told.Add(1)
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
			if obj.(*corev1.Pod).ResourceVersion == last {
				told.Done()
			}
		}})
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go inf.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		return nil, errors.New("it did not sync")
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	close(t.play)
	told.Wait()
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	n := float64(events)
	return figures{
		"events/s":        n / took.Seconds(),
		"allocs an event": float64(after.Mallocs-before.Mallocs) / n,
		"bytes an event":  float64(after.TotalAlloc-before.TotalAlloc) / n,
	}, nil
}
