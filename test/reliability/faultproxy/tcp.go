package faultproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"
)

// TCP is a proxy in front of a server that breaks connections. Toxiproxy makes them
// slow and silent. TCP itself adds two faults of open connections that Toxiproxy does
// not have: a reset, and a dead connection beside working ones. Its methods may be
// called from any goroutine.
type TCP struct {
	upstream string
	addr     string
	server   *toxiproxy.ApiServer
	accepts  sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	wire     *toxiproxy.Proxy
	dead     []*toxiproxy.Proxy // of connections that are half open
	conns    map[*net.TCPConn]struct{}
	dialled  int
}

// NewTCP starts a proxy for addr on a port of the loopback interface. The caller must
// call [TCP.Close].
func NewTCP(addr string) (*TCP, error) {
	t := &TCP{
		upstream: addr, addr: "127.0.0.1:0", conns: map[*net.TCPConn]struct{}{},
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
	}
	if err := t.renew(); err != nil {
		return nil, err
	}
	if err := t.Accept(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Addr is the host and port of the proxy. It does not change.
func (t *TCP) Addr() string { return t.addr }

// Config returns config with the address of t instead of the server's.
func (t *TCP) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = "https://" + t.addr
	return config
}

// Connections returns the number of connections since the start.
func (t *TCP) Connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dialled
}

// renew sends connections through a toxiproxy without faults.
func (t *TCP) renew() error {
	wire := toxiproxy.NewProxy(t.server, "wire", "127.0.0.1:0", t.upstream)
	if err := wire.Start(); err != nil {
		return fmt.Errorf("fault proxy: start toxiproxy: %w", err)
	}
	t.wire = wire
	return nil
}

// Accept accepts connections again, after [TCP.Refuse].
func (t *TCP) Accept() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", t.addr)
	if err != nil {
		return fmt.Errorf("fault proxy: %w", err)
	}
	t.listener, t.addr = l, l.Addr().String()
	t.accepts.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.accepts.Go(func() { t.pass(conn.(*net.TCPConn)) })
		}
	})
	return nil
}

// pass carries one connection.
func (t *TCP) pass(client *net.TCPConn) {
	t.mu.Lock()
	t.dialled++
	wire := t.wire.Listen
	t.conns[client] = struct{}{}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.conns, client)
		t.mu.Unlock()
		client.Close()
	}()
	up, err := net.Dial("tcp", wire)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(up, client)
		up.Close()
	})
	_, err = io.Copy(client, up)
	if errors.Is(err, syscall.ECONNRESET) {
		_ = client.SetLinger(0)
	}
	client.Close()
	both.Wait()
}

// Refuse refuses new connections. Open connections stay.
func (t *TCP) Refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener != nil {
		t.listener.Close()
		t.listener = nil
	}
}

// Reset resets the connections that are open: their clients read ECONNRESET.
func (t *TCP) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.conns {
		_ = conn.SetLinger(0)
		conn.Close()
	}
}

// Stall blocks both directions of all open and new connections without closing them.
// [TCP.Heal] closes them.
func (t *TCP) Stall() error { return t.toxic("timeout", "upstream", "downstream") }

// Drip limits responses to a number of kilobytes a second.
func (t *TCP) Drip(kilobytes int) error {
	return t.toxics("bandwidth", map[string]any{"rate": kilobytes}, "downstream")
}

// Slice splits responses into delayed packets of a few bytes.
func (t *TCP) Slice(size int, apart time.Duration) error {
	return t.toxics("slicer", map[string]any{"average_size": size, "size_variation": size / 2, "delay": apart.Microseconds()}, "downstream")
}

// Latency delays both directions.
func (t *TCP) Latency(d, jitter time.Duration) error {
	return t.toxics("latency", map[string]any{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()}, "upstream", "downstream")
}

// ResetNew resets a connection at its first response.
func (t *TCP) ResetNew() error { return t.toxic("reset_peer", "upstream", "downstream") }

// HalfOpen makes open connections half open, like a gateway that loses its state:
// what the client sends gets neither a response nor an error. New connections work.
func (t *TCP) HalfOpen() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, stream := range []string{"upstream", "downstream"} {
		if err := addToxic(t.wire, "timeout", stream, map[string]any{"timeout": 0}); err != nil {
			return err
		}
	}
	t.dead = append(t.dead, t.wire)
	return t.renew()
}

func (t *TCP) toxic(kind string, streams ...string) error {
	return t.toxics(kind, map[string]any{"timeout": 0}, streams...)
}

func (t *TCP) toxics(kind string, attributes map[string]any, streams ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, stream := range streams {
		if err := addToxic(t.wire, kind, stream, attributes); err != nil {
			return err
		}
	}
	return nil
}

func addToxic(wire *toxiproxy.Proxy, kind, stream string, attributes map[string]any) error {
	toxic, err := json.Marshal(map[string]any{"type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		return err
	}
	if _, err := wire.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
		return fmt.Errorf("fault proxy: add the toxic %s: %w", kind, err)
	}
	return nil
}

// Heal ends every fault. It closes connections that have lost data: those that were
// half open, stalled or slow.
func (t *TCP) Heal() error {
	t.mu.Lock()
	for _, wire := range append(t.dead, t.wire) {
		wire.Stop()
	}
	t.dead = nil
	err := t.renew()
	t.mu.Unlock()
	return errors.Join(err, t.Accept())
}

// Close closes every connection and returns when all goroutines have ended.
func (t *TCP) Close() error {
	t.Refuse()
	t.mu.Lock()
	for _, wire := range append(t.dead, t.wire) {
		wire.Stop()
	}
	for conn := range t.conns {
		conn.Close()
	}
	t.mu.Unlock()
	t.accepts.Wait()
	return nil
}
