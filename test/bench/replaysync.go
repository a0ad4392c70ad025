package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	dropin "github.com/tidings-io/tidings/informer/clientgo/informers"
)

// replaySync mirrors many pods from a server that replays stored bytes, and lists
// them anew when the server no longer knows the version that the watch is at. CPU
// is that of the process. That of a relist is from the end of the watch until every
// change is in the store, the waiting before the next request included; the heap is
// collected before, and what of it is garbage afterwards nobody pays for.
var replaySync = line{
	name: "replaysync",
	what: fmt.Sprintf("First sync of %%d pods from a server that replays stored bytes, and a relist with one in %d changed", oneIn),
	size: 100_000, quick: 100,
	setup: serveBoth,
	claims: []claim{
		{3, "heap KB a pod, 100,000 pods, drop-in", "heap KB/object", "tidings, drop-in", "", timesAtMost(0.5)},
		{4, "heap KB a pod, 100,000 pods, typed", "heap KB/object", "tidings, typed", "", timesAtMost(0.25)},
		{4, "heap KB a pod, 100,000 pods, typed, managedFields kept", "heap KB/object", "tidings, typed, managedFields kept", "", target{}},
		{5, "heap KB a pod, 100,000 pods, compact, keys and indexes included", "heap KB/object", "tidings, compact", "", timesAtMost(0.1)},
		{7, "first sync of 100,000 pods from stored bytes, typed, wall s", "first sync: wall s", "tidings, typed", "", timesAtMost(0.7)},
		{7, "the same, CPU s", "first sync: CPU s", "tidings, typed", "", timesAtMost(1)},
		{7, "first sync of 100,000 pods from stored bytes, compact, wall s", "first sync: wall s", "tidings, compact", "", timesAtMost(0.7)},
		{7, "the same, CPU s", "first sync: CPU s", "tidings, compact", "", timesAtMost(1)},
		{7, "first sync of 100,000 pods from stored bytes, raw (the JSON as it was sent), wall s", "first sync: wall s", "tidings, raw", "", timesAtMost(0.3)},
		{7, "the same, CPU s", "first sync: CPU s", "tidings, raw", "", timesAtMost(0.3)},
		{8, "relist of 100,000 pods with 1 % changed, typed, CPU s", "relist: CPU s", "tidings, typed", "", timesAtMost(0.1)},
		{8, "the same, MB allocated", "relist: MB allocated", "tidings, typed", "", target{}},
		{8, "relist of 100,000 pods with 1 % changed, drop-in, CPU s", "relist: CPU s", "tidings, drop-in", "", target{}},
		{8, "relist of 100,000 pods with 1 % changed, compact, CPU s", "relist: CPU s", "tidings, compact", "", target{}},
	},
	sides: append(mirrors(syncAndRelist), rawMirror(syncAndRelist)),
}

// syncAndRelist measures both with one mirror.
func syncAndRelist(ctx context.Context, size int, m relister) (figures, error) {
	busy := cpu()
	out, err := settle(size, func() (func() int, error) {
		err := m.start()
		busy = cpu() - busy
		return m.count, err
	})
	if err != nil {
		return nil, err
	}
	out["first sync: CPU s"] = busy
	changing, err := m.changing(size)
	if err != nil {
		return nil, err
	}
	heap()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	busy = cpu()
	if err := m.relist(ctx, size, changing); err != nil {
		return nil, err
	}
	out["relist: CPU s"] = cpu() - busy
	runtime.ReadMemStats(&after)
	out["relist: MB allocated"] = float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20)
	return out, m.changed(changing)
}

// replayConfig is how to reach the server at an address, as client-go's own
// defaults have it but for the limit of requests.
func replayConfig(address string) *rest.Config {
	return &rest.Config{Host: address, QPS: -1, ContentConfig: rest.ContentConfig{
		AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json", ContentType: "application/vnd.kubernetes.protobuf",
	}}
}

func clientGoReplay(ctx context.Context, address string) (cache.SharedIndexInformer, func() error) {
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(replayConfig(address)), 0)
	pods := factory.Core().V1().Pods().Informer()
	return pods, func() error {
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
			return errors.New("client-go did not sync")
		}
		return nil
	}
}

func tidingsReplay[T informer.Object](address string, opts ...informer.Option) (*informer.Informer[T], error) {
	conn, err := cluster.New("replay", replayConfig(address))
	if err != nil {
		return nil, err
	}
	return informer.New[T](conn, opts...)
}

// dropInReplay is clientGoReplay with one import changed.
func dropInReplay(ctx context.Context, address string) (cache.SharedIndexInformer, func() error) {
	factory := dropin.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(replayConfig(address)), 0)
	pods := factory.Core().V1().Pods().Informer()
	return pods, func() error {
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
			return errors.New("the drop-in did not sync")
		}
		return nil
	}
}

// held counts what an informer holds, without reading it.
func held[T informer.Object](inf *informer.Informer[T]) func() int {
	return func() int {
		v := inf.View()
		defer v.Release()
		return v.Len()
	}
}
