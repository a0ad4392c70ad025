package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// dial opens a raw connection to the server. It has a deadline, and is closed with the
// test.
func (r *rig) dial() net.Conn {
	r.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	r.must(err)
	r.must(c.SetDeadline(time.Now().Add(30 * time.Second)))
	r.Cleanup(func() { c.Close() })
	return c
}

func (r *rig) write(c net.Conn, text string) {
	r.Helper()
	_, err := io.WriteString(c, text)
	r.must(err)
}

// closed reads until the server closes the connection, and returns what it sent.
func (r *rig) closed(c net.Conn) string {
	r.Helper()
	said, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		r.Errorf("the server keeps the connection, having said %q", said)
	}
	return string(said)
}

// drip sends a byte now and then, until the connection is closed.
func drip(t *testing.T, c net.Conn, b byte) {
	done := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
		}
	}()
}

func TestSlowSenders(t *testing.T) {
	short := server.Options{HeaderTimeout: 100 * time.Millisecond, IdleTimeout: 100 * time.Millisecond, RequestTimeout: 200 * time.Millisecond}
	r := start(t, options{server: short})
	for name, begin := range map[string]string{
		"nothing":          "",
		"a line":           "GET /po",
		"headers":          "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"a body":           "POST /pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
		"a review":         "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
		"a body of a read": "GET /api/v1/configmaps HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			c := r.dial()
			r.write(c, begin)
			if name != "nothing" {
				drip(t, c, 'x')
			}
			if said := r.closed(c); strings.Contains(said, "HTTP/1.1 2") && name != "a body of a read" {
				t.Errorf("it is answered %q", said)
			}
		})
	}
	t.Run("the next request", func(t *testing.T) {
		r := start(t, options{server: server.Options{IdleTimeout: short.IdleTimeout}}) // the first one may take its time
		c := r.dial()
		r.write(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if said := r.closed(c); !strings.HasPrefix(said, "HTTP/1.1 200") {
			t.Error(said)
		}
	})
	t.Run("a handshake", func(t *testing.T) {
		config, _, err := server.GenerateTLS([]string{"localhost"})
		if err != nil {
			t.Fatal(err)
		}
		secure := short
		secure.TLS = config
		r := start(t, options{server: secure})
		r.closed(r.dial())
	})
	eventually(t, "no connection is left", func() bool {
		resp, err := r.client.Get(r.url + "/metrics")
		if err != nil {
			return false // on a slow machine this client is a slow sender, too
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(body), "tidings_http_connections 1\n")
	})
}

// in returns the rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	out := *r
	out.TB = t
	return &out
}

// A client that does not read the response is given up on, and costs nothing then.
func TestSlowReaders(t *testing.T) {
	config, _, err := server.GenerateTLS([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	for protocol, o := range map[string]server.Options{"HTTP/1.1": {}, "HTTP/2": {TLS: config}} {
		t.Run(protocol, func(t *testing.T) {
			o.WriteTimeout = 300 * time.Millisecond
			r := start(t, options{server: o})
			big := strings.Repeat("x", 512<<10)
			for i := range 24 { // more than sockets buffer
				r.set("default", fmt.Sprint("big-", i), big)
			}
			r.client.Transport.(*http.Transport).DisableCompression = true // the objects compress too well
			r.secure(o.TLS != nil)
			for _, path := range []string{"/cm", "/cm?watch=true", "/api/v1/configmaps", "/api/v1/configmaps?watch=true", "/api/v1/configmaps?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"} {
				t.Run(path, func(t *testing.T) {
					r := r.in(t)
					r.get("/cm?limit=1") // which is mirrored then
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
					r.must(err)
					resp, err := r.client.Do(req)
					r.must(err)
					defer resp.Body.Close()
					eventually(t, "the server has given up", func() bool {
						m := string(r.get("/metrics").body)
						return strings.Contains(m, "tidings_http_requests_in_flight 1\n") && strings.Contains(m, "tidings_http_watches 0\n")
					})
					if _, err := io.Copy(io.Discard, resp.Body); err == nil {
						t.Error("what was cut off looks like a whole answer")
					}
				})
			}
		})
	}
}

// Over HTTP/2, too, a watch may be idle for longer than the write timeout.
func TestIdleWatchesStayOpen(t *testing.T) {
	config, _, err := server.GenerateTLS([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	const patience = 250 * time.Millisecond
	r := start(t, options{server: server.Options{TLS: config, WriteTimeout: patience}})
	r.secure(true)
	version := r.set("default", "a", "1")
	r.get("/cm")
	resp, err := r.client.Get(r.url + "/api/v1/configmaps?watch=true&resourceVersion=" + version)
	r.must(err)
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatal(resp.Proto)
	}
	lines := bufio.NewReader(resp.Body)
	for _, name := range []string{"b", "c"} {
		r.set("default", name, "1")
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"name":"`+name+`"`) {
			t.Fatalf("%q %v", line, err)
		}
		<-time.After(3 * patience) // in which nothing happens, which is what is tested
	}
}

// secure makes the rig's client use HTTP/2 over TLS.
func (r *rig) secure(yes bool) {
	if !yes {
		return
	}
	r.url = strings.Replace(r.url, "http://", "https://", 1)
	transport := &http.Transport{ForceAttemptHTTP2: true, DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	r.client = &http.Client{Transport: transport}
	r.Cleanup(transport.CloseIdleConnections)
}

func TestTooLong(t *testing.T) {
	r := start(t, options{})
	for request, want := range map[string]string{
		"GET /pods HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\n":                                                                                                 "431",
		"GET /pods HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-Many: x\r\n", 1<<16) + "\r\n":                                                                                                 "431",
		"GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: localhost\r\n\r\n":                                                                                                                 "431",
		"GET /pods?labelSelector=" + strings.Repeat("x", 9<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n":                                                                                              "414",
		"GET /api/v1/pods?labelSelector=" + strings.Repeat("x", 60<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n":                                                                                      "400",
		"GET /api/v1/pods?" + strings.Repeat("a&", 30<<10) + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":                                                                              "200",
		"GET /api/v1/pods?labelSelector=a+in+(" + strings.Repeat("b,", 30<<10) + "b) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":                                                        "200",
		"GET /" + strings.Repeat("a/", 20<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n":                                                                                                               "404",
		"GET /pods HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: " + strings.Repeat("9", 50<<10) + "\r\nConnection: close\r\n\r\n":                                                                    "200",
		"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAccept: " + strings.Repeat("a/b;q=0.1,", 5<<10) + "*/*\r\nConnection: close\r\n\r\n":                                                         "200",
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n" + strings.Repeat(" ", 4000000): "413",
	} {
		c := r.dial()
		go func() { _, _ = io.WriteString(c, request) }() // it may stop listening before that is said
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%.60q: %v", request, err)
			continue
		}
		body := make([]byte, 512)
		n, _ := io.ReadFull(resp.Body, body)
		if !strings.HasPrefix(resp.Status, want) {
			t.Errorf("%.60q: %s, want %s: %s", request, resp.Status, want, body[:n])
		}
		if bytes.Contains(body[:n], []byte(strings.Repeat("x", 400))) {
			t.Errorf("%.60q is repeated in the answer", request)
		}
		c.Close()
	}
}

// A request that a proxy in front might take for one and the server for two, or the
// other way round, ends the connection.
func TestRequestSmuggling(t *testing.T) {
	r := start(t, options{})
	const hidden = "GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, request := range map[string]string{
		"length and chunks":        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"the same of the API":      "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"a write with both":        "POST /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":              "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n" + hidden,
		"a list of lengths":        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0, 44\r\n\r\n" + hidden,
		"a length with a sign":     "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: +0\r\n\r\n" + hidden,
		"an unknown coding":        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n" + hidden,
		"two codings":              "GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"a blank before the colon": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
		"a line break in a value":  "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\x00\n\r\n" + hidden,
		"a body that is a request": "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 41\r\n\r\n" + hidden,
		"two hosts":                "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n" + hidden,
	} {
		c := r.dial()
		r.write(c, request)
		if said := r.closed(c); strings.Count(said, "HTTP/1.1 ") != 1 || strings.Contains(said, "hidden") {
			t.Errorf("%s: answered %q", name, said)
		}
	}
	if strings.Contains(r.log.String(), "/hidden") {
		t.Error("a request that was hidden in another has been answered")
	}
}

// abroad is a listener whose connections come from addresses that tests choose.
type abroad struct {
	net.Listener
	from func() string
}

type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", f.address)
	return a
}

func (a abroad) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return from{c, a.from()}, nil
}

func TestOneAddressLeavesRoomForOthers(t *testing.T) {
	r := start(t, options{})
	s, err := server.New(r.mirror, server.Options{MaxConnections: 6, MaxConnectionsPerAddress: 2})
	r.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	var address atomic.Value
	address.Store("192.0.2.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, abroad{l, func() string { return address.Load().(string) }}) }()
	defer func() { cancel(); r.must(<-done) }()
	r.url = "http://" + l.Addr().String()
	answered := func(c net.Conn) bool {
		_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err != nil {
			return false
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && resp.StatusCode == http.StatusOK
	}
	first, second := r.dial(), r.dial()
	if !answered(first) || !answered(second) {
		t.Fatal("not even the first are answered")
	}
	if answered(r.dial()) {
		t.Error("a third connection from one address")
	}
	for _, other := range []string{"192.0.2.2:1", "127.0.0.1:1"} {
		address.Store(other)
		if !answered(r.dial()) {
			t.Errorf("none from %s", other)
		}
	}
	address.Store("192.0.2.1:1")
	first.Close()
	eventually(t, "there is room again", func() bool { return answered(r.dial()) })
}

// h2 is a raw HTTP/2 connection.
type h2 struct {
	*rig
	*http2.Framer
	buf  bytes.Buffer
	enc  *hpack.Encoder
	conn net.Conn
}

func (r *rig) h2() *h2 {
	r.Helper()
	c := tls.Client(r.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	r.must(c.Handshake())
	r.write(c, http2.ClientPreface)
	out := &h2{rig: r, Framer: http2.NewFramer(c, c), conn: c}
	out.enc = hpack.NewEncoder(&out.buf)
	r.must(out.WriteSettings())
	return out
}

func (h *h2) headers(path string, more ...string) []byte {
	h.buf.Reset()
	for name, value := range map[string]string{":method": "GET", ":scheme": "https", ":authority": "localhost", ":path": path} {
		h.must(h.enc.WriteField(hpack.HeaderField{Name: name, Value: value}))
	}
	for _, value := range more {
		h.must(h.enc.WriteField(hpack.HeaderField{Name: "x-more", Value: value}))
	}
	return h.buf.Bytes()
}

// Known HTTP/2 attacks harm only the client that tries them.
func TestHTTP2Floods(t *testing.T) {
	config, _, err := server.GenerateTLS([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, options{server: server.Options{TLS: config, WriteTimeout: time.Second}})
	rawURL := r.url
	r.secure(true)
	r.get("/cm")
	flood := func(name string, stopped bool, begin func(h *h2) error) {
		t.Run(name, func(t *testing.T) {
			raw := r.in(t)
			raw.url = rawURL
			h := raw.h2()
			wrote := make(chan error, 1)
			raw.must(h.conn.SetDeadline(time.Now().Add(2 * time.Minute)))
			go func() {
				err := begin(h)
				if !stopped {
					h.conn.Close()
				}
				wrote <- err
			}()
			var last http2.Frame
			refused := 0
			for {
				f, err := h.ReadFrame()
				if err != nil {
					break
				}
				if last = f; f.Header().Type == http2.FrameRSTStream && f.(*http2.RSTStreamFrame).ErrCode == http2.ErrCodeRefusedStream {
					if refused++; refused == 50 {
						break
					}
				}
				if f.Header().Type == http2.FrameGoAway {
					break
				}
			}
			h.conn.Close()
			<-wrote
			if _, ok := last.(*http2.GoAwayFrame); stopped && !ok && refused < 50 {
				t.Errorf("it is not told to stop; last came %v", last)
			}
			if a := r.in(t).get("/healthz"); a.code != http.StatusOK {
				t.Errorf("somebody else is answered %d", a.code)
			}
			eventually(t, "nothing is left of it", func() bool {
				m := string(r.get("/metrics").body)
				return strings.Contains(m, "tidings_http_requests_in_flight 1\n") && strings.Contains(m, "tidings_http_watches 0\n")
			})
		})
	}
	flood("rapid reset", false, func(h *h2) error {
		for id := uint32(1); id < 10_000; id += 2 {
			if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.headers("/cm"), EndStream: true, EndHeaders: true}); err != nil {
				return err
			}
			if err := h.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				return err
			}
		}
		return nil
	})
	flood("many watches", true, func(h *h2) error {
		for id := uint32(1); id < 800; id += 2 {
			if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.headers("/cm?watch=true"), EndStream: true, EndHeaders: true}); err != nil {
				return err
			}
		}
		return nil
	})
	flood("endless headers", true, func(h *h2) error {
		if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.headers("/cm"), EndStream: true}); err != nil {
			return err
		}
		long := strings.Repeat("x", 8<<10)
		for range 10_000 {
			h.buf.Reset()
			if err := h.enc.WriteField(hpack.HeaderField{Name: "x-long", Value: long, Sensitive: true}); err != nil {
				return err
			}
			if err := h.WriteContinuation(1, false, h.buf.Bytes()); err != nil {
				return err
			}
		}
		return nil
	})
	flood("pings", false, func(h *h2) error {
		for range 100_000 { // whose answers it does not read
			if err := h.WritePing(false, [8]byte{}); err != nil {
				return err
			}
		}
		return nil
	})
}
