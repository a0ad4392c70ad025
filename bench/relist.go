package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
)

// relist is what it costs when the server no longer knows the version that a
// watch is at. CPU is that of the process from the end of the watch until every
// change is in the store, the waiting before the next request included. The heap
// is collected before; what of it is garbage afterwards nobody pays for.
var relist = line{
	name: "relist",
	what: fmt.Sprintf("Relist of %%d pods, one in %d of which has changed, from a server that replays stored bytes", oneIn),
	size: 100_000, quick: 100,
	setup: serveReplay,
	claims: []claim{
		{8, "relist of 100,000 pods with 1 % changed, typed, CPU s", "relist: CPU s", "tidings, typed", "", timesAtMost(0.1)},
		{8, "the same, MB allocated", "relist: MB allocated", "tidings, typed", "", target{}},
	},
	sides: mirrors(func(ctx context.Context, size int, m relister) (figures, error) {
		if err := m.start(); err != nil {
			return nil, err
		}
		changing, err := m.changing(size)
		if err != nil {
			return nil, err
		}
		heap()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := cpu()
		if err := m.relist(ctx, changing); err != nil {
			return nil, err
		}
		busy := cpu() - began
		runtime.ReadMemStats(&after)
		return figures{
			"relist: CPU s":        busy,
			"relist: MB allocated": float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20),
		}, nil
	}),
}

// relister is an informer of either kind.
type relister struct {
	start   func() error
	keys    func() []string         // of all pods, in order
	version func(key string) string // of a pod
}

func sharedMirror(pods cache.SharedIndexInformer, start func() error) relister {
	return relister{start, func() []string {
		keys := pods.GetStore().ListKeys()
		slices.Sort(keys)
		return keys
	}, func(key string) string {
		pod, ok, _ := pods.GetStore().GetByKey(key)
		if !ok {
			return ""
		}
		return pod.(*corev1.Pod).ResourceVersion
	}}
}

func ourMirror(ctx context.Context, pods *informer.Informer[*corev1.Pod]) relister {
	return relister{func() error { return pods.Start(ctx) }, func() []string {
		var keys []string
		for _, pod := range pods.List(informer.Query{}) {
			keys = append(keys, pod.Namespace+"/"+pod.Name)
		}
		return keys
	}, func(key string) string {
		namespace, name, _ := strings.Cut(key, "/")
		pod, ok := pods.Get(namespace, name)
		if !ok {
			return ""
		}
		return pod.ResourceVersion
	}}
}

// changing are the keys of the pods that will change.
func (m relister) changing(size int) (keys []string, err error) {
	all := m.keys()
	if len(all) != size {
		return nil, fmt.Errorf("%d objects were mirrored, not %d", len(all), size)
	}
	for i := 0; i < len(all); i += oneIn {
		keys = append(keys, strings.Clone(all[i]))
	}
	return keys, nil
}

// relist has the server end the watch, and waits until every change is known.
func (m relister) relist(ctx context.Context, changing []string) error {
	if err := serving(ctx, 1); err != nil {
		return err
	}
	for _, key := range changing {
		for m.version(key) != versions[1] {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// serving has the server serve one of its lists.
func serving(ctx context.Context, list int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/serving/%d", os.Getenv("REPLAY"), list), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// mirrors are the contenders.
func mirrors(measure func(context.Context, int, relister) (figures, error)) []side {
	shared := func(m func(context.Context, string) (cache.SharedIndexInformer, func() error)) func(context.Context, int) (figures, error) {
		return func(ctx context.Context, size int) (figures, error) {
			if err := serving(ctx, 0); err != nil {
				return nil, err
			}
			pods, start := m(ctx, os.Getenv("REPLAY"))
			return measure(ctx, size, sharedMirror(pods, start))
		}
	}
	ours := func(opts ...informer.Option) func(context.Context, int) (figures, error) {
		return func(ctx context.Context, size int) (figures, error) {
			if err := serving(ctx, 0); err != nil {
				return nil, err
			}
			pods, err := tidingsReplay(os.Getenv("REPLAY"), opts...)
			if err != nil {
				return nil, err
			}
			return measure(ctx, size, ourMirror(ctx, pods))
		}
	}
	return []side{
		{"client-go, typed", shared(clientGoReplay)},
		{"tidings, drop-in", shared(dropInReplay)},
		{"tidings, typed", ours()},
		{"tidings, typed, managedFields kept", ours(informer.KeepManagedFields())},
		{"tidings, compact", ours(informer.Compact())},
	}
}
