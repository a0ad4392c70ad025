package kubeapi

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipFrom is the size from which on an answer is compressed if the client accepts it, as
// in kube-apiserver.
const gzipFrom = 128 << 10

var gzips = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// body writes an answer: a small one as a whole, a large one piece by piece, compressed
// if the client accepts it.
type body struct {
	w        http.ResponseWriter
	compress bool
	buffer   []byte
	out      io.Writer // nil until the answer has turned out to be large
	gzip     *gzip.Writer
	err      error
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, gzipFrom+32<<10); return &b }}

func (c *call) begin(mediaType string) *body {
	c.w.Header().Set("Content-Type", mediaType)
	b := &body{w: c.w, compress: acceptsGzip(c.r), buffer: *buffers.Get().(*[]byte)}
	return b
}

// acceptsGzip parses the header as kube-apiserver does.
func acceptsGzip(r *http.Request) bool {
	for _, clause := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, _, _ := strings.Cut(clause, ";")
		if strings.TrimSpace(name) == "gzip" {
			return true
		}
	}
	return false
}

// add writes parts. close returns an error.
func (b *body) add(parts ...[]byte) {
	for _, p := range parts {
		b.buffer = append(b.buffer, p...)
		if len(b.buffer) > gzipFrom {
			b.flush()
		}
	}
}

// flush sends the buffered part of a large answer.
func (b *body) flush() {
	if b.out == nil {
		b.out = b.w
		if b.compress {
			b.w.Header().Set("Content-Encoding", "gzip")
			b.w.Header().Add("Vary", "Accept-Encoding")
			b.gzip = gzips.Get().(*gzip.Writer)
			b.gzip.Reset(b.w)
			b.out = b.gzip
		}
		b.w.WriteHeader(http.StatusOK)
	}
	if b.err == nil {
		_, b.err = b.out.Write(b.buffer)
	}
	b.buffer = b.buffer[:0]
}

// end sends the rest of the answer.
func (b *body) end() { _ = b.close(nil) }

// close sends the rest of the answer or, if there is an error, drops it. If the answer
// has begun by then, close aborts the connection, so that the client does not take the
// sent part for the whole. Otherwise it returns the error.
func (b *body) close(err error) error {
	begun := b.out != nil
	switch {
	case err != nil:
	case begun:
		b.flush()
		if err = b.err; err == nil && b.gzip != nil {
			err = b.gzip.Close()
		}
	default:
		b.w.Header().Set("Content-Length", strconv.Itoa(len(b.buffer)))
		b.w.WriteHeader(http.StatusOK)
		_, _ = b.w.Write(b.buffer) // an error means that the client is gone
	}
	if b.gzip != nil {
		b.gzip.Reset(nil)
		gzips.Put(b.gzip)
	}
	if cap(b.buffer) < 4*gzipFrom {
		b.buffer = b.buffer[:0]
		buffers.Put(&b.buffer)
	}
	if err != nil && begun {
		panic(http.ErrAbortHandler)
	}
	return err
}
