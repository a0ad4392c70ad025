package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// Profiles serves the profiles of the program, as package net/http/pprof does, on an
// address of its own. They show what is in memory and can be made to cost time, so the
// address must be a loopback address.
type Profiles struct {
	listener net.Listener
	log      *slog.Logger
}

// NewProfiles listens on a loopback address. The caller must call [Profiles.Serve].
func NewProfiles(ctx context.Context, address string, log *slog.Logger) (*Profiles, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		_ = l.Close()
		return nil, errors.New("profiles show what is in memory, so they are served on a loopback address only: use one such as 127.0.0.1:6060, and reach it from elsewhere with ssh -L or kubectl port-forward")
	}
	return &Profiles{listener: l, log: log}, nil
}

// Serve serves the profiles until ctx ends.
func (p *Profiles) Serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	h := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !namesThisMachine(r.Host) { // a web page whose name resolves to this machine
				http.Error(w, "requests must be addressed to this machine, as localhost or a loopback address", http.StatusForbidden)
				return
			}
			mux.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends profiles in progress
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = h.Close() })()
	p.log.Info("serving profiles", "url", fmt.Sprintf("http://%s/debug/pprof/", p.listener.Addr()))
	if err := h.Serve(p.listener); ctx.Err() == nil {
		return fmt.Errorf("server: serve profiles on %s: %w", p.listener.Addr(), err)
	}
	return nil
}
