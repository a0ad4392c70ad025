package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"

	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/kubeapi/discovery"
	"github.com/tidings-io/tidings/kubeapi/passthrough"
	"github.com/tidings-io/tidings/mirror"
)

// Server answers HTTP requests from a mirror. Make one with [New], and run it
// once with [Server.Serve].
type Server struct {
	mirror      *mirror.Mirror
	opts        Options
	log         *slog.Logger
	metrics     *metrics
	handler     http.Handler
	objects     http.Handler // compresses if the client likes
	kube        *kubeapi.Handler
	discovery   *discovery.Handler
	passthrough *passthrough.Handler // nil: refuse

	watches  atomic.Int64
	requests sync.WaitGroup
	draining context.Context // ended when watches are to end
	drain    context.CancelCauseFunc
}

// New makes a server of what m holds. It starts nothing, and m stays the
// caller's to close.
func New(m *mirror.Mirror, opts Options) (*Server, error) {
	if m == nil {
		return nil, errors.New("server: there is no mirror to serve from")
	}
	s := &Server{mirror: m, opts: opts.withDefaults()}
	s.log = s.opts.Logger
	s.draining, s.drain = context.WithCancelCause(context.Background())
	var err error
	if s.metrics, err = newMetrics(m, &s.watches); err != nil {
		return nil, fmt.Errorf("server: metrics: %w", err)
	}
	compress, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("server: compression: %w", err)
	}
	s.objects = compress(http.HandlerFunc(s.serveObjects))
	s.discovery = s.newDiscovery()
	s.passthrough = s.newPassthrough()
	s.kube = s.newKubernetes()
	s.handler = s.observe(http.HandlerFunc(s.serve))
	return s, nil
}

// Handler answers the server's requests, for use in another HTTP server.
// Watches end only when their connections do.
func (s *Server) Handler() http.Handler { return s.handler }

// Close lets go of what a server holds that is used by its [Server.Handler] alone;
// [Server.Serve] does so itself. Requests under way are not disturbed.
func (s *Server) Close() {
	if s.passthrough != nil {
		s.passthrough.Close()
	}
}

// ListenAndServe is [Server.Serve] on a TCP address; "" means [DefaultAddr].
func (s *Server) ListenAndServe(ctx context.Context, addr string) error {
	if addr == "" {
		addr = DefaultAddr
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return s.Serve(ctx, l)
}

var errShutdown = errors.New("the server is shutting down")

// Serve answers requests that come to l until ctx ends, and returns nil when
// everything has ended in good order: watches are told so at once, requests
// may finish within [Options.ShutdownTimeout]. It closes l. An address that is
// not a loopback one is refused, see [Options.InsecureServeAnyone].
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.mayListen(l.Addr()); err != nil {
		_ = l.Close()
		return err
	}
	h := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	defer s.Close()
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	select {
	case err := <-ended:
		s.drain(errShutdown)
		_ = h.Close()
		s.requests.Wait()
		return fmt.Errorf("server: accept connections on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.drain(errShutdown)
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.ShutdownTimeout)
	defer cancel()
	err := h.Shutdown(patience)
	if err != nil {
		_ = h.Close()
		err = fmt.Errorf("server: some requests did not end within %s of the shutdown and were cut off: %w", s.opts.ShutdownTimeout, err)
	}
	<-ended
	s.requests.Wait() // with their connections closed they end at once
	return err
}

// mayListen refuses addresses that others than this machine's users can reach.
func (s *Server) mayListen(addr net.Addr) error {
	if s.opts.InsecureServeAnyone {
		return nil
	}
	switch a := addr.(type) {
	case *net.TCPAddr:
		if a.IP.IsLoopback() {
			return nil
		}
	case *net.UnixAddr:
		return nil
	}
	return fmt.Errorf("server: will not listen on %s: there is no authentication yet, so anyone who can reach it could read all that the mirror can; listen on a loopback address such as %s, or allow it with --insecure-serve-anyone", addr, DefaultAddr)
}
