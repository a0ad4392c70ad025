package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/informerapi"
)

// relister is an informer of either kind.
type relister struct {
	start    func() error
	count    func() int
	keys     func() []string         // of all pods, in order
	version  func(key string) string // of a pod
	caughtUp func(size int) bool     // whether the second list is in the store; nil: the pods tell
}

func sharedMirror(pods cache.SharedIndexInformer, start func() error) relister {
	return relister{start, func() int { return len(pods.GetStore().ListKeys()) }, func() []string {
		keys := pods.GetStore().ListKeys()
		slices.Sort(keys)
		return keys
	}, func(key string) string {
		pod, ok, _ := pods.GetStore().GetByKey(key)
		if !ok {
			return ""
		}
		return pod.(*corev1.Pod).ResourceVersion
	}, nil}
}

func ourMirror[T informer.Object](ctx context.Context, pods *informer.Informer[T]) relister {
	latest := informerapi.Of(pods)
	return relister{func() error { return pods.Start(ctx) }, held(pods), func() []string {
		var keys []string
		for pod := range pods.All(informer.Query{}) {
			keys = append(keys, pod.GetNamespace()+"/"+pod.GetName())
		}
		return keys
	}, func(key string) string {
		namespace, name, _ := strings.Cut(key, "/")
		pod, ok := pods.Get(namespace, name)
		if !ok {
			return ""
		}
		return pod.GetResourceVersion()
	}, func(size int) bool {
		// A list comes into the store as a whole, with its version.
		version, objects := latest.Latest()
		return version == versions[1] && objects == size
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

// relist has the server end the watch, and waits until every change is in the store.
func (m relister) relist(ctx context.Context, size int, changing []string) error {
	if err := serving(ctx, 1); err != nil {
		return err
	}
	wait := func(ok func() bool) error {
		for !ok() {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	if m.caughtUp != nil {
		return wait(func() bool { return m.caughtUp(size) })
	}
	for _, key := range changing {
		if err := wait(func() bool { return m.version(key) == versions[1] }); err != nil {
			return err
		}
	}
	return nil
}

// changed says that all that has changed can be read.
func (m relister) changed(keys []string) error {
	for _, key := range keys {
		if v := m.version(key); v != versions[1] {
			return fmt.Errorf("after the relist, %s is of version %q, not %s", key, v, versions[1])
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
func mirrors(measure mirrorMeasure) []side {
	shared := func(open func(context.Context, string) (cache.SharedIndexInformer, func() error)) mirrorOpener {
		return func(ctx context.Context, address string) (relister, error) {
			return sharedMirror(open(ctx, address)), nil
		}
	}
	return []side{
		measure.of("client-go, typed", shared(clientGoReplay)),
		measure.of("tidings, drop-in", shared(dropInReplay)),
		measure.of("tidings, typed", ours[*corev1.Pod]()),
		measure.of("tidings, typed, managedFields kept", ours[*corev1.Pod](informer.KeepManagedFields())),
		measure.of("tidings, compact", ours[*corev1.Pod](informer.Compact())),
	}
}

// rawMirror keeps pods as the JSON that was sent, five times as much as protobuf. The
// server keeps that, too, but compressed.
func rawMirror(measure mirrorMeasure) side {
	return measure.of("tidings, raw", ours[*codec.Raw](informer.Resource("pods")))
}

// mirrorOpener prepares a mirror of what a server replays.
type mirrorOpener func(ctx context.Context, address string) (relister, error)

// mirrorMeasure is what is done with it.
type mirrorMeasure func(context.Context, int, relister) (figures, error)

func (measure mirrorMeasure) of(name string, open mirrorOpener) side {
	return side{name, func(ctx context.Context, size int) (figures, error) {
		if err := serving(ctx, 0); err != nil {
			return nil, err
		}
		m, err := open(ctx, os.Getenv("REPLAY"))
		if err != nil {
			return nil, err
		}
		return measure(ctx, size, m)
	}}
}

func ours[T informer.Object](opts ...informer.Option) mirrorOpener {
	return func(ctx context.Context, address string) (relister, error) {
		pods, err := tidingsReplay[T](address, opts...)
		if err != nil {
			return relister{}, err
		}
		return ourMirror(ctx, pods), nil
	}
}
