package kubeapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

// isWebSocket is kube-apiserver's reading of the headers.
func isWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, clause := range strings.Split(strings.ToLower(r.Header.Get("Connection")), ",") {
		if strings.TrimSpace(clause) == "upgrade" {
			return true
		}
	}
	return false
}

// webSocket answers a watch over a WebSocket: each event is a message, of text
// for JSON and binary for protobuf. A single subprotocol that the client offers is
// granted, whatever it is, as in kube-apiserver.
func (c *call) webSocket(s *stream, mediaType string) (*stream, func(), error) {
	c.w.Header().Set("Content-Type", mediaType)
	begun, over := make(chan *websocket.Conn), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		websocket.Handler(func(conn *websocket.Conn) {
			_ = conn.SetDeadline(time.Time{})
			begun <- conn
			<-over
		}).ServeHTTP(hijacker{c.w}, c.r)
	}()
	var conn *websocket.Conn
	select {
	case conn = <-begun:
	case <-done: // the handshake was refused, and answered
		s.err = http.ErrNotSupported
		s.cancel()
		return s, func() {}, nil
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		_, _ = io.Copy(io.Discard, conn) // clients say nothing but that they go
		s.cancel()
	}()
	s.each = true
	s.flush = func() error { return nil }
	s.write = func(b []byte) error {
		_ = conn.SetWriteDeadline(time.Now().Add(webSocketPatience))
		if c.form.media == asProtobuf {
			return websocket.Message.Send(conn, b[4:]) // a message has its length by itself
		}
		return websocket.Message.Send(conn, string(b))
	}
	return s, func() {
		s.end()
		_ = conn.Close()
		close(over)
		<-done
		<-received
	}, nil
}

// webSocketPatience is how long a client may take to read a message.
const webSocketPatience = 30 * time.Second

// hijacker lets a connection be taken over through what wraps its writer.
type hijacker struct{ http.ResponseWriter }

// Hijack implements [http.Hijacker].
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
