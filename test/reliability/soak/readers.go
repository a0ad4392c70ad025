package soak

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
)

// readers starts all readers.
func (s *soak) readers(ctx context.Context, group *errgroup.Group) error {
	if err := s.library(ctx, group); err != nil {
		return err
	}
	n := 0
	often := func(least, most time.Duration) func() time.Duration {
		n++ // each has its own: they are used concurrently
		random := s.random(fmt.Sprint("stay", n))
		return func() time.Duration { return between(random, least, most) }
	}
	// How long a reader stays disconnected.
	away := func(long bool) func() time.Duration {
		if long {
			return often(10*time.Second, 50*time.Second)
		}
		return often(0, 500*time.Millisecond)
	}
	for _, e := range []struct {
		name       string
		r          resource
		stay       func() time.Duration
		slow, away bool
	}{
		{"pods", pods, nil, false, false},
		{"pods, comes and goes", pods, often(time.Second, 15*time.Second), false, false},
		{"config maps, slow", configMaps, nil, true, false},
		{"config maps, comes and goes", configMaps, often(time.Second, 10*time.Second), false, false},
		{"config maps, away for long", configMaps, often(time.Second, 5*time.Second), false, true},
		{"pods, away for long", pods, often(time.Second, 5*time.Second), false, true},
		{"deployments", deployments, often(10*time.Second, 60*time.Second), false, false},
		{"widgets", widgets, nil, false, false},
		{"widgets, comes and goes", widgets, often(time.Second, 8*time.Second), false, false},
	} {
		c := &sse{replay: newReplay("server-sent events", e.name, e.r, s.truth, s.report), soak: s, stay: e.stay, away: away(e.away), drip: e.slow}
		c.slow = e.slow || e.away
		group.Go(func() error { return c.run(ctx) })
	}
	for _, e := range []struct {
		name                          string
		r                             resource
		metadata, initial, slow, away bool
	}{
		{"pods", pods, false, false, false, false},
		{"pods, streamed list", pods, true, true, false, false},
		{"config maps", configMaps, true, false, false, false},
		{"config maps, slow", configMaps, false, false, true, false},
		{"config maps, streamed list, slow", configMaps, false, true, true, false},
		{"config maps, away for long", configMaps, false, false, false, true},
		{"pods, away for long", pods, true, false, false, true},
		{"replica sets", replicaSets, true, true, false, false},
		{"widgets", widgets, false, false, false, false},
		{"widgets, streamed list", widgets, true, true, false, false},
	} {
		c := &kubeWatch{replay: newReplay("Kubernetes watch", e.name, e.r, s.truth, s.report), soak: s, metadata: e.metadata, initial: e.initial, away: away(e.away), drip: e.slow}
		c.slow = e.slow || e.away
		group.Go(func() error { return c.run(ctx) })
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}})
	if err != nil {
		return err
	}
	group.Go(func() error { return s.clientGo(ctx, client.CoreV1().RESTClient(), pods, &corev1.Pod{}, pods.plural) })
	group.Go(func() error {
		return s.clientGo(ctx, client.CoreV1().RESTClient(), configMaps, &corev1.ConfigMap{}, configMaps.plural)
	})
	group.Go(func() error {
		return s.clientGo(ctx, client.AppsV1().RESTClient(), deployments, &appsv1.Deployment{}, deployments.plural)
	})
	group.Go(func() error { return s.lists(ctx, s.random("lists")) })
	group.Go(func() error { return s.bodies(ctx, s.random("bodies")) })
	return nil
}

// library starts informers in this process, and their subscribers.
func (s *soak) library(ctx context.Context, group *errgroup.Group) error {
	conn, err := cluster.New("soak", s.config)
	if err != nil {
		return err
	}
	quiet := informer.Logger(slog.New(slog.DiscardHandler))
	podsOf, err := informer.New[*corev1.Pod](conn, quiet)
	if err != nil {
		return err
	}
	mapsOf, err := informer.New[*corev1.ConfigMap](conn, quiet, informer.Compact())
	if err != nil {
		return err
	}
	deploymentsOf, err := informer.New[*appsv1.Deployment](conn, quiet, informer.Retain(200))
	if err != nil {
		return err
	}
	slow := s.random("slow")
	handle(ctx, s, podsOf, pods, "pods", nil)
	handle(ctx, s, podsOf, pods, "pods, slow", func() time.Duration { return between(slow, 0, 60*time.Millisecond) }, informer.FoldAfter(200))
	handle(ctx, s, mapsOf, configMaps, "config maps", nil)
	slower := s.random("slower")
	handle(ctx, s, mapsOf, configMaps, "config maps, slow", func() time.Duration { return between(slower, 0, 100*time.Millisecond) }, informer.FoldAfter(50))
	for _, run := range []func(context.Context) error{podsOf.Run, mapsOf.Run, deploymentsOf.Run} {
		group.Go(func() error {
			for ctx.Err() == nil { // refused while rights are revoked
				if err := run(ctx); err != nil && ctx.Err() == nil {
					s.report.ended("informer", err.Error())
					Sleep(ctx, time.Second)
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		return loop(ctx, s, deploymentsOf, deployments, "deployments, comes and goes", s.random("loop"))
	})
	group.Go(func() error { return views(ctx, s, podsOf, pods) })
	group.Go(func() error { return views(ctx, s, mapsOf, configMaps) })
	group.Go(func() error { return views(ctx, s, deploymentsOf, deployments) })
	return nil
}
