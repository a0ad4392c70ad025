package fakeapi

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
)

// Serve serves a cluster on a free port of the loopback interface until ctx ends
// or stop is called. stop breaks all connections and waits until their goroutines
// have ended. The config has no rate limit. Set its BearerToken to be one of
// [Options.Users].
func Serve(ctx context.Context, c *Cluster) (config *rest.Config, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	closeServer := serve(c, listener)
	ended := context.AfterFunc(ctx, closeServer)
	stop = func() {
		ended()
		closeServer()
	}
	return &rest.Config{Host: "http://" + listener.Addr().String(), QPS: -1}, stop, nil
}

// InProcess connects clients to a cluster without a socket. It works inside a
// testing/synctest bubble if cluster, config and clients all stay in it.
// stop breaks all connections and waits until their goroutines have ended.
// The config has no rate limit. Copies of it use the same connections; set a
// copy's BearerToken to be one of [Options.Users].
func InProcess(c *Cluster) (config *rest.Config, stop func()) {
	listener := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	closeServer := serve(c, listener)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.isDown() {
				return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: listener.Addr(), Err: syscall.ECONNREFUSED}
			}
			return listener.dial(ctx)
		},
		MaxIdleConnsPerHost: 100,
		DisableCompression:  true,
	}
	stop = func() {
		closeServer()
		transport.CloseIdleConnections()
	}
	return &rest.Config{Host: "http://demo.invalid", Transport: transport, QPS: -1}, stop
}

// serve runs an HTTP server on a listener and returns how to end it.
func serve(c *Cluster, listener net.Listener) (stop func()) {
	// The context tells watches that the server ends: a client that does not
	// read may keep them from noticing that their connection is closed.
	ctx, cancel := context.WithCancel(context.Background())
	var (
		mu       sync.Mutex
		stopping bool
		handlers sync.WaitGroup
	)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			mu.Lock()
			if stopping {
				mu.Unlock()
				panic(http.ErrAbortHandler)
			}
			handlers.Add(1)
			mu.Unlock()
			defer handlers.Done()
			c.ServeHTTP(w, req)
		}),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // broken connections are what faults are about
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // only ever ends because it is closed
	}()
	return sync.OnceFunc(func() {
		mu.Lock()
		stopping = true
		mu.Unlock()
		cancel()
		_ = server.Close()
		<-done
		handlers.Wait()
	})
}

// pipeListener hands the server ends of pipes to an HTTP server.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var errListenerClosed = errors.New("fakeapi: the in-process cluster is stopped")

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	var err error
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		err = errListenerClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = client.Close()
	_ = server.Close()
	return nil, err
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "in-process" }
