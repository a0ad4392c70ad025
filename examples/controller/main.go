// Controller is a complete controller: each Deployment with the label
// example.com/min-available gets a PodDisruptionBudget with that value. It touches
// nothing else.
//
//	go run ./examples/controller                      # with a demo cluster in memory
//	go run ./examples/controller --demo=false         # with the cluster of the kubeconfig
//
// It shows what a controller in production has: a workqueue with retries, reads of its
// own writes, leader election, structured logs, metrics, detection of modified cache
// objects, and an orderly end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/examples/internal/target"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/metrics"
)

type options struct {
	target          target.Flags
	workers         int
	metricsAddress  string
	namespace       string // of the lease; empty for no leader election
	detectMutations bool
}

func main() {
	var o options
	o.target.Register(flag.CommandLine)
	flag.IntVar(&o.workers, "workers", 2, "number of objects to reconcile at a time")
	flag.StringVar(&o.metricsAddress, "metrics-address", "127.0.0.1:9090", "address for /metrics and /readyz")
	flag.StringVar(&o.namespace, "leader-election-namespace", "", "elect a leader by a Lease in this namespace")
	flag.BoolVar(&o.detectMutations, "detect-mutations", false, "report code that modifies cached objects, at the price of copies")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetSlogLogger(log) // client-go's messages
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, log); err != nil {
		log.Error("the controller has ended", "err", err)
		os.Exit(1)
	}
}

// run runs the controller until ctx ends.
func run(ctx context.Context, o options, log *slog.Logger) error {
	conn, disconnect, err := o.target.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	client, err := kubernetes.NewForConfig(conn.Config())
	if err != nil {
		return err
	}
	factory := newFactory(conn, o, log)
	c, err := newController(factory, client, log)
	if err != nil {
		return err
	}
	defer c.queue.ShutDown()
	stopServer, err := serve(o.metricsAddress, factory, log)
	if err != nil {
		return err
	}
	defer stopServer()

	// The informers run before the election, so that a new leader has its cache.
	syncCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := factory.Start(syncCtx); err != nil {
		return err
	}
	defer func() {
		if err := factory.Stop(context.Background()); err != nil {
			log.Error("an informer did not stop", "err", err)
		}
	}()
	if o.namespace == "" {
		c.run(ctx, o.workers)
		return nil
	}
	return lead(ctx, client, o.namespace, log, func(ctx context.Context) { c.run(ctx, o.workers) })
}

func newFactory(conn *cluster.Cluster, o options, log *slog.Logger) *informer.Factory {
	opts := []informer.Option{informer.Logger(log)}
	if o.detectMutations {
		opts = append(opts, informer.DetectMutations(func(err error) { log.Error("a cached object was modified", "err", err) }))
	}
	return informer.NewFactory(conn, opts...)
}

// serve serves metrics and readiness until the returned function is called.
func serve(address string, factory *informer.Factory, log *slog.Logger) (stop func(), err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(metrics.OfFactory(factory)))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		for _, inf := range factory.Informers() {
			if s := inf.Status(); !s.Synced {
				http.Error(w, fmt.Sprintf("%s: %s, last error: %v", s.Resource.Resource, s.Phase, s.LastError), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	log.Info("metrics are served", "url", "http://"+listener.Addr().String()+"/metrics")
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are no longer served", "err", err)
		}
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// lead waits until this process is the leader and runs work. It returns when ctx ends,
// and with an error when another process has become the leader.
func lead(ctx context.Context, client kubernetes.Interface, namespace string, log *slog.Logger, work func(context.Context)) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	identity := fmt.Sprintf("%s_%d", host, os.Getpid())
	begun, ended := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "tidings-example-controller"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				close(begun)
				defer close(ended)
				log.Info("this process is the leader", "identity", identity)
				work(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		<-ended // no write may follow the end of this function
		return errors.New("another process is the leader now")
	}
	select {
	case <-begun:
		<-ended
	default: // this process has not been the leader
	}
	return nil
}
