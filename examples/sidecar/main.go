// Sidecar serves a read API for the pods that its own informer holds: get, list and
// watch in the form of the Kubernetes API, so that programs beside it read by any
// client of Kubernetes and do not each watch the API server.
//
//	go run ./examples/sidecar                         # with a demo cluster in memory
//	go run ./examples/sidecar --demo=false            # with the cluster of the kubeconfig
//	curl 'localhost:8001/api/v1/pods?labelSelector=app%3Dweb'
//
// It is what a program can embed with the library alone, in [handler]: one resource,
// JSON, no discovery, so clients that name the resource work, and kubectl only with
// --raw. All of discovery, tables, paging, protobuf and the rights of callers is in
// the server, the command tidings serve, which can run as a sidecar as it is.
//
// Everybody who can connect can read everything. So it listens on loopback only, where
// the containers of a pod reach each other.
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

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/examples/internal/target"
	"github.com/tidings-io/tidings/informer"
)

func main() {
	var flags target.Flags
	flags.Register(flag.CommandLine)
	port := flag.Int("port", 8001, "port to listen on, on the loopback interface")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flags, *port, log, func(string) {}); err != nil {
		log.Error("the sidecar has ended", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It calls ready with the address once it serves.
func run(ctx context.Context, flags target.Flags, port int, log *slog.Logger, ready func(url string)) error {
	conn, disconnect, err := flags.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	// Retain is how far back a client can resume a watch; before that it lists again.
	pods, err := informer.New[*corev1.Pod](conn, informer.Retain(1000), informer.Logger(log))
	if err != nil {
		return err
	}
	syncCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := pods.Start(syncCtx); err != nil {
		return err
	}
	defer func() { _ = pods.Stop(context.Background()) }() // there are no handlers to wait for

	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	h := handler[*corev1.Pod]{pods}
	mux.HandleFunc("GET /api/v1/pods", h.serveCollection)
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods", h.serveCollection)
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", h.serveObject)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends the watches
	}
	stopped := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(grace)
	})
	defer stopped()
	log.Info("serving", "url", "http://"+listener.Addr().String()+"/api/v1/pods", "pods", len(pods.List(informer.Query{})))
	ready("http://" + listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
