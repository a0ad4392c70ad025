package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// observe is what every request goes through: it bounds what the client may
// take and reports what came of it.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		defer s.requests.Done()
		begun := time.Now()
		out := &response{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.opts.WriteTimeout, http2: r.ProtoMajor == 2}
		rt, unknown := parsePath(s.escapeCluster(r.URL.EscapedPath()))
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if len(r.TransferEncoding) > 0 || reads && r.ContentLength != 0 {
			// What comes behind such a body could be the next request to one and
			// part of this one to another who stands between.
			out.Header().Set("Connection", "close")
		}
		if rt.kind == kubernetes {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if r.ContentLength != 0 {
				_ = out.control.SetReadDeadline(begun.Add(s.opts.RequestTimeout))
			}
		} else if r.ContentLength != 0 {
			// Nothing here takes a body. The connection ends with the answer,
			// and a client that sends slowly does not hold it open until then.
			out.Header().Set("Connection", "close")
			_ = out.control.SetReadDeadline(begun.Add(s.opts.HeaderTimeout))
		}
		broken := true
		defer func() {
			if broken {
				out.code = statusBroken
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					s.log.Error("a request made the server panic", "route", rt.pattern, "panic", p, "stack", string(debug.Stack()))
				}
			}
			took := time.Since(begun)
			s.metrics.request(rt.pattern, r.Method, out.code, took, rt.watch)
			// Never the query: selectors and tokens are the caller's business.
			s.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method), slog.String("route", rt.pattern),
				slog.String("path", r.URL.Path), slog.Int("status", out.code), slog.Int64("bytes", out.bytes), slog.Duration("took", took), slog.String("client", r.RemoteAddr))
			if broken {
				panic(http.ErrAbortHandler)
			}
		}()
		out.Header().Set("X-Content-Type-Options", "nosniff")
		rt.cluster, rt.nowhere = s.mirror.Cluster(rt.name)
		switch rt.kind {
		case kubernetes:
			r = ofKubernetes(r, &rt)
		case objects:
			rt.watch = wantsWatch(r)
		}
		r = r.WithContext(context.WithValue(r.Context(), routeKey{}, rt))
		switch {
		case !s.addressed(r.Host):
			fail(out, http.StatusForbidden, &problem{Reason: "Host", Error: "requests must be addressed to this machine, as localhost or a loopback address: else any web page could have a browser read for it"})
		case !reads && rt.kind != kubernetes:
			out.Header().Set("Allow", "GET, HEAD")
			fail(out, http.StatusMethodNotAllowed, &problem{Reason: "MethodNotAllowed", Error: "this server only reads: use GET", Exists: []string{"GET", "HEAD"}})
		case len(r.URL.RawQuery) > maxQuery && rt.kind != kubernetes:
			fail(out, http.StatusRequestURITooLong, &problem{Reason: "Invalid", Error: "the query is too long"})
		case unknown != nil:
			fail(out, http.StatusNotFound, unknown)
		default:
			next.ServeHTTP(out, r)
		}
		// Who breaks off a request, or has not sent all of it in time, must not
		// take nothing for an answer.
		broken = out.code == 0 && r.Context().Err() != nil
		out.last()
	})
}

type routeKey struct{}

func routeOf(r *http.Request) route { return r.Context().Value(routeKey{}).(route) }

// statusBroken is noted for answers that broke off.
const statusBroken = 599

// addressed says whether a request is meant for this machine. A web page whose
// host name was made to point at a loopback address would get past the limit to
// such addresses, but not past this one. It has no credentials to get past
// authentication.
func (s *Server) addressed(host string) bool {
	if s.opts.InsecureServeAnyone || s.opts.Gate != nil {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// response notes what is answered, and gives up on clients that do not read.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	http2   bool

	code    int
	bytes   int64
	renewed time.Time

	// With HTTP/2, over ends the stream if what is being written takes too long.
	over  *time.Timer
	mu    sync.Mutex
	until time.Time // zero: nothing is being written
}

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *response) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *response) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	defer r.renew()()
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// FlushError is for http.ResponseController.
func (r *response) FlushError() error {
	defer r.renew()()
	return r.control.Flush()
}

// Flush implements [http.Flusher].
func (r *response) Flush() { _ = r.FlushError() }

// renew gives the client time to read what is about to be written. Once in a
// while is enough. The function that is returned says that it has been written.
func (r *response) renew() (written func()) {
	if r.http2 {
		// There a deadline that passes ends the stream, also of a watch on which
		// there is nothing to write.
		r.writing(time.Now().Add(r.timeout))
		if r.over == nil {
			r.over = time.AfterFunc(r.timeout, r.expired)
		} else {
			r.over.Reset(r.timeout)
		}
		return func() {
			r.over.Stop()
			r.writing(time.Time{})
		}
	}
	if now := time.Now(); now.Sub(r.renewed) >= r.timeout/16 {
		r.renewed = now
		_ = r.control.SetWriteDeadline(now.Add(r.timeout)) // not every writer has deadlines, and then there is no client to wait for
	}
	return func() {}
}

func (r *response) writing(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = until
}

// expired ends the stream, unless what was being written has been. It touches
// nothing when the handler has ended.
func (r *response) expired() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.until.IsZero() && !time.Now().Before(r.until) {
		_ = r.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// last gives the client time to read what is still to be sent when the handler
// has ended.
func (r *response) last() {
	if r.http2 {
		_ = r.control.SetWriteDeadline(time.Now().Add(r.timeout))
	}
}
