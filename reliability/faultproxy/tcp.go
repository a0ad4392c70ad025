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

// TCP stands in front of a server and breaks connections. Toxiproxy makes them
// slow and silent; what it cannot do to connections that are open already, a
// reset and a connection that is dead while others live, is done in front of it.
// Its methods may be called from any goroutine.
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

// NewTCP starts to pass connections on to addr, from a port of the loopback
// interface. [TCP.Close] must be called in the end.
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

// Addr is host and port to connect to. It stays the same.
func (t *TCP) Addr() string { return t.addr }

// Config is config with the address of t in the place of the server's.
func (t *TCP) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = "https://" + t.addr
	return config
}

// Connections counts those that have been made since the start.
func (t *TCP) Connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dialled
}

// renew has connections go over a wire without faults.
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

// Refuse refuses new connections. Those that are open stay.
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

// Stall lets nothing through in either direction, on connections that are open
// and on new ones, without closing any. [TCP.Heal] closes them.
func (t *TCP) Stall() error { return t.toxic("timeout", "upstream", "downstream") }

// Drip lets answers through at so many kilobytes a second.
func (t *TCP) Drip(kilobytes int) error {
	return t.toxics("bandwidth", map[string]any{"rate": kilobytes}, "downstream")
}

// Slice cuts answers into packets of a few bytes each, which come apart.
func (t *TCP) Slice(size int, apart time.Duration) error {
	return t.toxics("slicer", map[string]any{"average_size": size, "size_variation": size / 2, "delay": apart.Microseconds()}, "downstream")
}

// Latency holds everything back for a while, in both directions.
func (t *TCP) Latency(d, jitter time.Duration) error {
	return t.toxics("latency", map[string]any{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()}, "upstream", "downstream")
}

// ResetNew resets connections as soon as there is something to be answered.
func (t *TCP) ResetNew() error { return t.toxic("reset_peer", "upstream", "downstream") }

// HalfOpen leaves the connections that are open without an other end, as a
// gateway does that forgets them: what is sent is never answered and nobody says
// why. New connections work.
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

// Heal ends every fault. Connections that have lost something on the way are
// closed: those that were half open, stalled or slow.
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

// Close closes every connection and returns when nothing runs any more.
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
