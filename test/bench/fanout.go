package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/clientgo"
)

// fanOut moves updates of decoded pods through an informer to its handlers, as
// fast as they go.
func fanOut(handlers int, target float64) line {
	what := fmt.Sprintf("events/s through an informer of 10,000 objects, handlers: %d", handlers)
	claims := []claim{
		{1, what + "; the library", "events/s", "tidings", "", timesAtLeast(target)},
		{1, what + "; the drop-in", "events/s", "tidings, drop-in", "", timesAtLeast(target)},
	}
	if handlers == 16 {
		claims = append(claims,
			claim{2, "allocations an event, 16 handlers; the library", "allocs an event", "tidings", "", atMost(2)},
			claim{2, "bytes an event, 16 handlers; the library", "bytes an event", "tidings", "", atMost(200)},
			claim{2, "allocations an event, 16 handlers; the drop-in", "allocs an event", "tidings, drop-in", "", atMost(2)},
			claim{2, "bytes an event, 16 handlers; the drop-in", "bytes an event", "tidings, drop-in", "", atMost(200)})
	}
	return line{
		name: fmt.Sprintf("fanout%d", handlers),
		what: fmt.Sprintf("%%d updates of 10,000 decoded pods through an informer to %d handlers", handlers),
		size: 500_000, quick: 1000,
		claims: claims,
		sides: fanSides(func(ctx context.Context, open opener, events int) (figures, error) {
			return fan(ctx, open, newTape(10_000, events), handlers)
		}),
	}
}

// latency is the time from the source to a handler, for updates that come at a
// steady pace.
var latency = line{
	name: "latency",
	what: "%d updates of 10,000 decoded pods, 10,000 a second, through an informer to 16 handlers",
	size: 50_000, quick: 1000,
	claims: []claim{
		{13, "watch to handler at 10,000 events/s, 16 handlers, p99 in ms; the library", "p99 ms", "tidings", "", atMost(1)},
		{13, "watch to handler at 10,000 events/s, 16 handlers, p99 in ms; the drop-in", "p99 ms", "tidings, drop-in", "", atMost(1)},
	},
	sides: fanSides(func(ctx context.Context, open opener, events int) (figures, error) {
		t := newTape(10_000, events)
		t.pace = 100 * time.Microsecond
		t.begun = make([]time.Time, events)
		return fan(ctx, open, t, 16)
	}),
}

// fanSides are the contenders. client-go's shared informer and the drop-in get
// their updates through the channel of a watch.Interface, the library by the
// calls of an informer.Source.
func fanSides(run func(ctx context.Context, open opener, events int) (figures, error)) []side {
	through := func(name string, open opener) side {
		return side{name, func(ctx context.Context, events int) (figures, error) { return run(ctx, open, events) }}
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return []side{
		through("client-go", shared(func(t *tape) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(t, &corev1.Pod{}, 0, indexers)
		})),
		through("tidings, drop-in", shared(func(t *tape) cache.SharedIndexInformer {
			return clientgo.NewSharedIndexInformer(t, &corev1.Pod{}, 0, indexers)
		})),
		through("tidings", native),
	}
}

// opener starts an informer of a tape and waits until it has synced. Each
// handler does nothing but call its function for each update.
type opener func(ctx context.Context, t *tape, handlers []func()) (stop func(), err error)

func shared(create func(*tape) cache.SharedIndexInformer) opener {
	return func(ctx context.Context, t *tape, handlers []func()) (func(), error) {
		inf := create(t)
		for _, count := range handlers {
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { count() }})
			if err != nil {
				return nil, err
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.RunWithContext(ctx)
		}()
		stop := func() {
			cancel()
			<-done
		}
		if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
			stop()
			return nil, errors.New("it did not sync")
		}
		return stop, nil
	}
}

func native(ctx context.Context, t *tape, handlers []func()) (func(), error) {
	inf, err := informer.NewFromSource[*corev1.Pod]("tape", source{t})
	if err != nil {
		return nil, err
	}
	for _, count := range handlers {
		inf.AddHandler(informer.Handlers[*corev1.Pod]{Update: func(_, _ *corev1.Pod) { count() }})
	}
	return func() { _ = inf.Stop(ctx) }, inf.Start(ctx)
}

// counter is what one handler counts, on cache lines of its own.
type counter struct {
	n    int
	took []time.Duration
	_    [128]byte
}

// fan plays the tape to some handlers and measures from the first update until
// the last handler has the last one. Every handler must get every update.
func fan(ctx context.Context, open opener, t *tape, handlers int) (figures, error) {
	events := len(t.updates)
	counters := make([]counter, handlers)
	finished := make(chan struct{}, handlers)
	deliver := make([]func(), handlers)
	for i := range deliver {
		c := &counters[i]
		deliver[i] = func() {
			if c.n++; c.n == events {
				finished <- struct{}{}
			}
		}
		if t.begun != nil {
			c.took = make([]time.Duration, 0, events)
			deliver[i] = func() {
				c.took = append(c.took, time.Since(t.begun[c.n]))
				if c.n++; c.n == events {
					finished <- struct{}{}
				}
			}
		}
	}
	stop, err := open(ctx, t, deliver)
	if err != nil {
		return nil, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun, busy := time.Now(), cpu()
	close(t.play)
	for range handlers {
		select {
		case <-finished:
		case <-time.After(2 * time.Minute):
			return nil, errors.New("a handler has not got every update")
		}
	}
	took := time.Since(begun)
	busy = cpu() - busy
	runtime.ReadMemStats(&after)
	stop()
	for i := range counters {
		if counters[i].n != events {
			return nil, fmt.Errorf("a handler got %d updates of %d", counters[i].n, events)
		}
	}
	if t.begun == nil {
		n := float64(events)
		return figures{
			"events/s":        n / took.Seconds(),
			"CPU µs an event": busy * 1e6 / n,
			"allocs an event": float64(after.Mallocs-before.Mallocs) / n,
			"bytes an event":  float64(after.TotalAlloc-before.TotalAlloc) / n,
		}, nil
	}
	var all []time.Duration
	for i := range counters {
		all = append(all, counters[i].took...)
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1e3 }
	return figures{"p50 ms": at(0.5), "p99 ms": at(0.99), "max ms": at(1)}, nil
}
