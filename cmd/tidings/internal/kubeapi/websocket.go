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

// isWebSocket parses the headers as kube-apiserver does.
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

// webSocket answers a watch over a WebSocket. Each event is a message, a text message for
// JSON and a binary one for protobuf. If the client offers a single subprotocol, it is
// accepted whatever it is, as in kube-apiserver.
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
	case <-done: // the handshake failed and was answered
		s.err = http.ErrNotSupported
		s.cancel()
		return s, func() {}, nil
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		_, _ = io.Copy(io.Discard, conn) // clients only close the connection
		s.cancel()
	}()
	s.each = true
	s.flush = func() error { return nil }
	s.write = func(b []byte) error {
		_ = conn.SetWriteDeadline(time.Now().Add(webSocketPatience))
		if c.form.media == asProtobuf {
			return websocket.Message.Send(conn, b[4:]) // without the length: a message has its own
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

// webSocketPatience is how long the write of a message may take.
const webSocketPatience = 30 * time.Second

// hijacker hijacks the connection of a wrapped ResponseWriter.
type hijacker struct{ http.ResponseWriter }

// Hijack implements [http.Hijacker].
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
