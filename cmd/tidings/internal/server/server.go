package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/net/netutil"

	"github.com/tidings-io/tidings/cmd/tidings/internal/budget"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/discovery"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/passthrough"
	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// Server answers HTTP requests from a mirror. Make it with [New], and run it once with
// [Server.Serve].
type Server struct {
	mirror      *mirror.Mirror
	reader      *read.Reader
	tables      *livetable.Tables
	opts        Options
	log         *slog.Logger
	metrics     *metrics
	handler     http.Handler
	objects     http.Handler // compresses if the client accepts it
	kube        *kubeapi.Handler
	discovery   *discovery.Handler
	passthrough *passthrough.Handler // nil: other requests are refused

	limits      *limiter
	unverified  *unverifiedLimiter
	memory      *memory
	budget      *budget.Budget
	connections atomic.Int64
	requests    sync.WaitGroup
	draining    context.Context // ends watches when it is done
	drain       context.CancelCauseFunc
}

// New makes a server for a mirror. It starts nothing. The caller closes m.
func New(m *mirror.Mirror, opts Options) (*Server, error) {
	if m == nil {
		return nil, errors.New("server: no mirror to serve")
	}
	s := &Server{mirror: m, reader: read.New(opts.Reads), opts: opts.withDefaults()}
	s.log = s.opts.Logger
	s.draining, s.drain = context.WithCancelCause(context.Background())
	var err error
	s.limits = newLimiter(s.opts)
	s.unverified = newUnverifiedLimiter(s.opts)
	s.memory = newMemory(m, s.opts.MemoryLimit)
	s.tables = livetable.New(s.reader, livetable.Options{MaxPerCaller: s.opts.MaxWindowsPerCaller, MaxBytes: int64(s.memory.limit / 8), Moment: func(p *read.Past) any { return momentOf(p) }})
	s.budget = budget.New(s.memory.limit, s.opts.RequestTimeout)
	if s.metrics, err = newMetrics(s); err != nil {
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
	s.handler = s.observe(s.limit(s.guard(http.HandlerFunc(s.serve))))
	return s, nil
}

// Handler returns the server's handler, for use in another HTTP server. Watches end
// only when their connections do.
func (s *Server) Handler() http.Handler { return s.handler }

// Close releases the resources of a server whose [Server.Handler] alone is used;
// [Server.Serve] does so itself. Requests in flight go on.
func (s *Server) Close() {
	s.tables.Close()
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

// Serve answers requests on l until ctx ends. Then it ends watches at once, and gives
// requests [Options.ShutdownTimeout] to finish. It returns nil if all did, and closes
// l.
//
// Serve refuses an address that is not a loopback address, unless callers are
// authenticated ([Options.Gate]) over TLS ([Options.TLS]), or
// [Options.InsecureServeAnyone] is set.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.mayListen(l.Addr()); err != nil {
		_ = l.Close()
		return err
	}
	h := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: s.opts.HeaderTimeout,
		IdleTimeout:       s.opts.IdleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      pingTimeout,
			PingTimeout:          pingTimeout,
			WriteByteTimeout:     s.opts.WriteTimeout,
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				s.connections.Add(1)
			case http.StateClosed, http.StateHijacked:
				s.connections.Add(-1)
			}
		},
	}
	defer s.Close()
	s.log.Info("limits", "requests", s.opts.MaxRequests, "requestsPerCaller", s.opts.MaxRequestsPerCaller,
		"watches", s.opts.MaxWatches, "watchesPerCaller", s.opts.MaxWatchesPerCaller,
		"connections", s.opts.MaxConnections, "memoryBytes", s.memory.limit) // 0: memory is not limited
	memoryCtx, stopMemory := context.WithCancel(ctx)
	defer stopMemory()
	s.requests.Go(func() { s.memory.run(memoryCtx) })
	ended := make(chan error, 1)
	go func() { ended <- s.accept(h, l) }()
	select {
	case err := <-ended:
		stopMemory()
		s.drain(errShutdown)
		_ = h.Close()
		s.requests.Wait()
		return fmt.Errorf("server: accept connections on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	begun := time.Now()
	open, _, _, _ := s.limits.counts()
	s.log.Info("shutting down", "why", context.Cause(ctx), "requests", open[short], "watches", open[longRunning])
	s.drain(errShutdown)
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.ShutdownTimeout)
	defer cancel()
	err := h.Shutdown(shutdownCtx)
	left, _, _, _ := s.limits.counts()
	if err != nil {
		_ = h.Close()
		err = fmt.Errorf("server: some requests did not finish within %s of the shutdown and were cut off: %w", s.opts.ShutdownTimeout, err)
	}
	<-ended
	s.requests.Wait() // with their connections closed they end at once
	s.log.Info("drained", "took", time.Since(begun).Round(time.Millisecond),
		"requests", max(0, open[short]-left[short]), "watches", max(0, open[longRunning]-left[longRunning]), "cutOff", left[short]+left[longRunning])
	return err
}

// accept serves on a listener: HTTP/1 or, with TLS, HTTP/2 too.
func (s *Server) accept(h *http.Server, l net.Listener) error {
	l = netutil.LimitListener(&addressLimiter{Listener: l, max: s.opts.MaxConnectionsPerAddress, open: map[string]int{}}, s.opts.MaxConnections)
	if s.opts.TLS == nil {
		return h.Serve(l)
	}
	h.TLSConfig = s.opts.TLS.Clone()
	if s.opts.Gate != nil {
		// The authorities depend on the cluster of the request, which is not
		// known yet.
		h.TLSConfig.ClientAuth = tls.RequestClientCert
	}
	return h.ServeTLS(l, "", "")
}

// mayListen refuses addresses that others than this machine's users can reach, unless
// callers are authenticated over TLS.
func (s *Server) mayListen(addr net.Addr) error {
	if s.opts.InsecureServeAnyone || s.opts.Gate != nil && s.opts.TLS != nil {
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
	if s.opts.Gate != nil {
		return fmt.Errorf("server: will not listen on %s without TLS: tokens and responses could be read on the network", addr)
	}
	return fmt.Errorf("server: will not listen on %s: without authentication anyone who can reach it could read all that the mirror can; authenticate callers with --authentication upstream, listen on a loopback address such as %s, or allow it with --insecure-serve-anyone", addr, DefaultAddr)
}
