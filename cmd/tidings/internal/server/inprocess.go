package server

import (
	"io"
	"net/http"
	"sync"
)

// InProcess makes requests of a handler in this process, as a user of this machine.
type InProcess struct {
	Handler http.Handler
	// From, if not nil, is the request on whose behalf others are made: from its address,
	// over its connection.
	From *http.Request
}

// RoundTrip implements [http.RoundTripper]. It returns when the handler has sent the
// header; the body is read while the handler writes it.
func (t InProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	in := req.Clone(req.Context())
	in.RequestURI, in.RemoteAddr, in.Host = req.URL.RequestURI(), "127.0.0.1:0", "localhost"
	if t.From != nil {
		in.RemoteAddr, in.Host, in.TLS = t.From.RemoteAddr, t.From.Host, t.From.TLS
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body, pipe := io.Pipe()
	w := &pipeWriter{pipe: pipe, header: http.Header{}, begun: make(chan struct{})}
	go func() {
		defer func() {
			if p := recover(); p != nil { // as a connection that breaks off
				_ = pipe.CloseWithError(io.ErrUnexpectedEOF)
			}
			w.WriteHeader(http.StatusOK)
			_ = pipe.Close()
		}()
		t.Handler.ServeHTTP(w, in)
	}()
	select {
	case <-w.begun:
	case <-req.Context().Done():
		_ = body.Close()
		<-w.begun // the handler ends with the context
		return nil, req.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: body, ContentLength: -1, Request: req,
	}, nil
}

// pipeWriter is the response of a handler, whose body is a pipe.
type pipeWriter struct {
	pipe   *io.PipeWriter
	header http.Header
	once   sync.Once
	begun  chan struct{} // closed when code and sent are set
	code   int
	sent   http.Header
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(p)
}

// Flush implements [http.Flusher]: what is written has been read.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }
