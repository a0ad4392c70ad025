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

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/net/netutil"

	"github.com/tidings-io/tidings/internal/budget"
	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/kubeapi/discovery"
	"github.com/tidings-io/tidings/kubeapi/passthrough"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// Server answers HTTP requests from a mirror. Make one with [New], and run it
// once with [Server.Serve].
type Server struct {
	mirror      *mirror.Mirror
	reader      *read.Reader
	opts        Options
	log         *slog.Logger
	metrics     *metrics
	handler     http.Handler
	objects     http.Handler // compresses if the client likes
	kube        *kubeapi.Handler
	discovery   *discovery.Handler
	passthrough *passthrough.Handler // nil: refuse

	limits      *limiter
	strangers   *strangers
	memory      *memory
	budget      *budget.Budget
	connections atomic.Int64
	requests    sync.WaitGroup
	draining    context.Context // ended when watches are to end
	drain       context.CancelCauseFunc
}

// New makes a server of what m holds. It starts nothing, and m stays the
// caller's to close.
func New(m *mirror.Mirror, opts Options) (*Server, error) {
	if m == nil {
		return nil, errors.New("server: there is no mirror to serve from")
	}
	s := &Server{mirror: m, reader: read.New(opts.Reads), opts: opts.withDefaults()}
	s.log = s.opts.Logger
	s.draining, s.drain = context.WithCancelCause(context.Background())
	var err error
	s.limits = newLimiter(s.opts)
	s.strangers = newStrangers(s.opts)
	s.memory = newMemory(m, s.opts.MemoryLimit)
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
// may finish within [Options.ShutdownTimeout]. It closes l.
//
// An address that is not a loopback one is refused, unless callers are
// authenticated ([Options.Gate]) over TLS ([Options.TLS]), or it is allowed by
// [Options.InsecureServeAnyone].
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
			SendPingTimeout:      quiet,
			PingTimeout:          quiet,
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
	minding, enough := context.WithCancel(ctx)
	defer enough()
	s.requests.Go(func() { s.memory.mind(minding) })
	ended := make(chan error, 1)
	go func() { ended <- s.accept(h, l) }()
	select {
	case err := <-ended:
		enough()
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

// accept serves on a listener, with TLS if there is any, which brings HTTP/2.
func (s *Server) accept(h *http.Server, l net.Listener) error {
	l = netutil.LimitListener(&fair{Listener: l, most: s.opts.MaxConnectionsPerAddress, open: map[string]int{}}, s.opts.MaxConnections)
	if s.opts.TLS == nil {
		return h.Serve(l)
	}
	h.TLSConfig = s.opts.TLS.Clone()
	if s.opts.Gate != nil {
		// Whose authority it must be of depends on the cluster that is asked
		// for, which is not known yet.
		h.TLSConfig.ClientAuth = tls.RequestClientCert
	}
	return h.ServeTLS(l, "", "")
}

// mayListen refuses addresses that others than this machine's users can reach,
// if these could read what is not theirs, or read along.
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
		return fmt.Errorf("server: will not listen on %s without TLS: tokens and answers could be read on their way", addr)
	}
	return fmt.Errorf("server: will not listen on %s: without authentication anyone who can reach it could read all that the mirror can; have callers authenticate as they do upstream, with --authentication upstream, listen on a loopback address such as %s, or allow it with --insecure-serve-anyone", addr, DefaultAddr)
}
