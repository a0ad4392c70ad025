package main

import (
	"context"
	"errors"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
)

// replaySync mirrors many pods from a server that replays stored bytes.
var replaySync = line{
	name: "replaysync",
	what: "First sync of %d pods from a server that replays stored bytes",
	size: 100_000, quick: 100,
	setup: serveReplay,
	claims: []claim{
		{7, "first sync of 100,000 pods from stored bytes, typed, wall s", "wall s", "tidings, typed", "", timesAtMost(0.7)},
		{7, "the same, CPU s", "CPU s", "tidings, typed", "", timesAtMost(1)},
	},
	sides: []side{
		{"client-go, typed", func(ctx context.Context, size int) (figures, error) {
			pods, start := clientGoReplay(ctx)
			return settle(size, func() (func() int, error) {
				return func() int { return len(pods.GetStore().ListKeys()) }, start()
			})
		}},
		{"tidings, typed", replayed()},
		{"tidings, typed, managedFields kept", replayed(informer.KeepManagedFields())},
		{"tidings, compact", replayed(informer.Compact())},
	},
}

// reads are what is read from a mirror of many pods.
var reads = line{
	name: "reads",
	what: "Reads of %d pods from memory",
	size: 100_000, quick: 100,
	setup: serveReplay,
	claims: []claim{
		{10, "list a namespace, µs", "namespace: µs", "tidings", "", timesAtMost(0.5)},
	},
	sides: []side{
		{"client-go", func(ctx context.Context, size int) (figures, error) {
			pods, start := clientGoReplay(ctx)
			if err := start(); err != nil {
				return nil, err
			}
			lister := listers.NewPodLister(pods.GetIndexer())
			any := pods.GetStore().List()[size/2].(*corev1.Pod)
			return readFigures(any,
				func(s labels.Selector) ([]*corev1.Pod, error) { return lister.List(s) },
				func(ns string) ([]*corev1.Pod, error) { return lister.Pods(ns).List(labels.Everything()) },
				func(ns, name string) (*corev1.Pod, error) { return lister.Pods(ns).Get(name) })
		}},
		{"tidings", func(ctx context.Context, size int) (figures, error) {
			pods, err := tidingsReplay()
			if err != nil {
				return nil, err
			}
			if err := pods.Start(ctx); err != nil {
				return nil, err
			}
			any := pods.List(informer.Query{Limit: size / 2})[size/2-1]
			return readFigures(any,
				func(s labels.Selector) ([]*corev1.Pod, error) { return pods.List(informer.Query{Labels: s}), nil },
				func(ns string) ([]*corev1.Pod, error) { return pods.List(informer.Query{Namespace: ns}), nil },
				func(ns, name string) (*corev1.Pod, error) {
					pod, ok := pods.Get(ns, name)
					if !ok {
						return nil, errors.New("not there")
					}
					return pod, nil
				})
		}},
	},
}

// readFigures times three ways of reading, each with the same pod in its answer.
func readFigures(pod *corev1.Pod, list func(labels.Selector) ([]*corev1.Pod, error), namespace func(string) ([]*corev1.Pod, error), get func(ns, name string) (*corev1.Pod, error)) (figures, error) {
	selector := labels.SelectorFromSet(labels.Set{"pod-template-hash": pod.Labels["pod-template-hash"]})
	found, err := list(selector)
	if err != nil {
		return nil, err
	}
	in, err := namespace(pod.Namespace)
	if err != nil {
		return nil, err
	}
	time := func(do func() error) float64 {
		r := testing.Benchmark(func(b *testing.B) {
			for range b.N {
				if e := do(); e != nil {
					err = e
				}
			}
		})
		return float64(r.T.Nanoseconds()) / float64(r.N)
	}
	out := figures{
		"label: found":     float64(len(found)),
		"label: µs":        time(func() error { _, err := list(selector); return err }) / 1000,
		"namespace: found": float64(len(in)),
		"namespace: µs":    time(func() error { _, err := namespace(pod.Namespace); return err }) / 1000,
		"get: ns":          time(func() error { _, err := get(pod.Namespace, pod.Name); return err }),
	}
	return out, err
}

func replayConfig() *rest.Config {
	return &rest.Config{Host: os.Getenv("REPLAY"), QPS: -1, ContentConfig: rest.ContentConfig{
		AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json", ContentType: "application/vnd.kubernetes.protobuf",
	}}
}

func clientGoReplay(ctx context.Context) (cache.SharedIndexInformer, func() error) {
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(replayConfig()), 0)
	pods := factory.Core().V1().Pods().Informer()
	return pods, func() error {
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
			return errors.New("client-go did not sync")
		}
		return nil
	}
}

func tidingsReplay(opts ...informer.Option) (*informer.Informer[*corev1.Pod], error) {
	conn, err := cluster.New("replay", replayConfig())
	if err != nil {
		return nil, err
	}
	return informer.New[*corev1.Pod](conn, opts...)
}

func replayed(opts ...informer.Option) func(context.Context, int) (figures, error) {
	return func(ctx context.Context, size int) (figures, error) {
		pods, err := tidingsReplay(opts...)
		if err != nil {
			return nil, err
		}
		return settle(size, func() (func() int, error) {
			return func() int { return pods.Status().Objects }, pods.Start(ctx)
		})
	}
}
