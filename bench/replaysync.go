package main

import (
	"context"
	"errors"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	dropin "github.com/tidings-io/tidings/informer/clientgo/informers"
)

// replaySync mirrors many pods from a server that replays stored bytes.
var replaySync = line{
	name: "replaysync",
	what: "First sync of %d pods from a server that replays stored bytes",
	size: 100_000, quick: 100,
	setup: serveReplay,
	claims: []claim{
		{3, "heap KB a pod, 100,000 pods, drop-in", "heap KB/object", "tidings, drop-in", "", timesAtMost(0.5)},
		{4, "heap KB a pod, 100,000 pods, typed", "heap KB/object", "tidings, typed", "", timesAtMost(0.25)},
		{5, "heap KB a pod, 100,000 pods, compact, keys and indexes included", "heap KB/object", "tidings, compact", "", timesAtMost(0.1)},
		{7, "first sync of 100,000 pods from stored bytes, typed, wall s", "wall s", "tidings, typed", "", timesAtMost(0.7)},
		{7, "the same, CPU s", "CPU s", "tidings, typed", "", timesAtMost(1)},
		{7, "first sync of 100,000 pods from stored bytes, compact, wall s", "wall s", "tidings, compact", "", timesAtMost(0.7)},
		{7, "the same, CPU s", "CPU s", "tidings, compact", "", timesAtMost(1)},
	},
	sides: []side{
		{"client-go, typed", func(ctx context.Context, size int) (figures, error) {
			pods, start := clientGoReplay(ctx, os.Getenv("REPLAY"))
			return settle(size, func() (func() int, error) {
				return func() int { return len(pods.GetStore().ListKeys()) }, start()
			})
		}},
		{"tidings, drop-in", func(ctx context.Context, size int) (figures, error) {
			pods, start := dropInReplay(ctx, os.Getenv("REPLAY"))
			return settle(size, func() (func() int, error) {
				return func() int { return len(pods.GetStore().ListKeys()) }, start()
			})
		}},
		{"tidings, typed", replayed()},
		{"tidings, typed, managedFields kept", replayed(informer.KeepManagedFields())},
		{"tidings, compact", replayed(informer.Compact())},
	},
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

func tidingsReplay(address string, opts ...informer.Option) (*informer.Informer[*corev1.Pod], error) {
	conn, err := cluster.New("replay", replayConfig(address))
	if err != nil {
		return nil, err
	}
	return informer.New[*corev1.Pod](conn, opts...)
}

func replayed(opts ...informer.Option) func(context.Context, int) (figures, error) {
	return func(ctx context.Context, size int) (figures, error) {
		pods, err := tidingsReplay(os.Getenv("REPLAY"), opts...)
		if err != nil {
			return nil, err
		}
		return settle(size, func() (func() int, error) {
			return func() int { return pods.Status().Objects }, pods.Start(ctx)
		})
	}
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
