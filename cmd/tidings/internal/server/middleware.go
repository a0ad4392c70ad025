package server

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
)

// observe wraps every request: it bounds what the client may send, and logs and counts
// the response.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		defer s.requests.Done()
		start := time.Now()
		out := &response{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.opts.WriteTimeout, http2: r.ProtoMajor == 2}
		rt, unknown := parsePath(s.escapeCluster(r.URL.EscapedPath()))
		rt.action = new(access.Attributes)
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if len(r.TransferEncoding) > 0 || reads && r.ContentLength != 0 {
			// A proxy in between might disagree where such a body ends, and take part
			// of it for the next request.
			out.Header().Set("Connection", "close")
		}
		if rt.kind == kubernetes {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if r.ContentLength != 0 {
				_ = out.control.SetReadDeadline(start.Add(s.opts.RequestTimeout))
			}
		} else if rt.kind == tools {
			rt.header = r.Header.Clone()
			_ = out.control.SetReadDeadline(start.Add(s.opts.HeaderTimeout))
		} else if r.ContentLength != 0 {
			// No other route takes a body. The connection ends with the response, and the
			// deadline keeps a slow sender from holding it open.
			out.Header().Set("Connection", "close")
			_ = out.control.SetReadDeadline(start.Add(s.opts.HeaderTimeout))
		}
		g := &grant{}
		var entry *audited
		aborted := true
		defer func() {
			sent, panicked := out.code, false
			if aborted {
				out.code = statusAborted
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panicked = true
					s.log.Error("panic while serving a request", "route", rt.pattern, "panic", p, "stack", string(debug.Stack()))
				}
			}
			entry.ended(sent, aborted, panicked)
			took := time.Since(start)
			s.metrics.request(rt, r.Method, out.code, took)
			// Never the query: it has selectors and tokens.
			s.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method), slog.String("route", rt.pattern),
				slog.String("path", r.URL.Path), slog.Int("status", out.code), slog.Int64("bytes", out.bytes), slog.Duration("took", took), slog.String("client", r.RemoteAddr))
			if aborted {
				panic(http.ErrAbortHandler)
			}
		}()
		out.Header().Set("X-Content-Type-Options", "nosniff")
		rt.cluster, rt.clusterErr = s.mirror.Cluster(rt.name)
		received := r
		switch rt.kind {
		case kubernetes:
			r = kubernetesRequest(r, &rt)
		case objects:
			if rt.watch = wantsWatch(r); rt.name == "" && isJoint(r) {
				rt.kind = jointWindow
			}
		}
		entry = s.audit(received, rt, g, start)
		out.begun = entry.started
		r = r.WithContext(context.WithValue(context.WithValue(r.Context(), routeKey{}, rt), grantKey{}, g))
		switch {
		case !s.hostAllowed(r.Host):
			fail(out, http.StatusForbidden, &problem{Reason: "Host", Error: "requests must be addressed to this machine, as localhost or a loopback address; otherwise any web page could read through a browser"})
		case rt.kind == tools && r.Method != http.MethodPost:
			out.Header().Set("Allow", "POST")
			fail(out, http.StatusMethodNotAllowed, &problem{Reason: "MethodNotAllowed", Error: "this is for agents, by the Model Context Protocol, which uses POST here: docs/agents.md", Exists: []string{"POST"}})
		case !reads && rt.kind != kubernetes && rt.kind != tools:
			out.Header().Set("Allow", "GET, HEAD")
			fail(out, http.StatusMethodNotAllowed, &problem{Reason: "MethodNotAllowed", Error: "this server is read-only: use GET", Exists: []string{"GET", "HEAD"}})
		case len(r.URL.RawQuery) > maxQuery && rt.kind != kubernetes:
			fail(out, http.StatusRequestURITooLong, &problem{Reason: "Invalid", Error: "the query is too long"})
		case unknown != nil:
			fail(out, http.StatusNotFound, unknown)
		default:
			next.ServeHTTP(out, r)
		}
		// A client that cancels a request, or does not send all of it in time, must
		// not take an empty response for the answer.
		aborted = out.code == 0 && r.Context().Err() != nil
		out.finish()
	})
}

type routeKey struct{}

func routeOf(r *http.Request) route { return r.Context().Value(routeKey{}).(route) }

// statusAborted is the status in logs and metrics of a response that was cut off.
const statusAborted = 599

// hostAllowed reports whether the Host header names this machine. A web page whose host
// name resolves to a loopback address gets past the restriction to such addresses, but
// not past this one. With authentication it has no credentials.
func (s *Server) hostAllowed(host string) bool {
	if s.opts.InsecureServeAnyone || s.opts.Gate != nil {
		return true
	}
	return namesThisMachine(host)
}

// namesThisMachine reports whether a Host header is localhost or a loopback address.
func namesThisMachine(host string) bool {
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

// response records the response, and gives up on clients that do not read.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	http2   bool
	begun   func(code int) // called before the headers are sent

	code    int
	bytes   int64
	renewed time.Time

	// With HTTP/2, timer ends the stream if a write takes too long.
	timer *time.Timer
	mu    sync.Mutex
	until time.Time // deadline of the write in progress; zero: none
}

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// begin notes the status of the response, which is not one of those before it.
func (r *response) begin(code int) {
	if r.code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		r.code = code
		r.begun(code)
	}
}

func (r *response) WriteHeader(code int) {
	r.begin(code)
	r.ResponseWriter.WriteHeader(code)
}

// Hijack is for http.ResponseController.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := r.control.Hijack()
	if err == nil {
		r.begin(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

func (r *response) Write(p []byte) (int, error) {
	r.begin(http.StatusOK)
	defer r.extendDeadline()()
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// FlushError is for http.ResponseController.
func (r *response) FlushError() error {
	defer r.extendDeadline()()
	return r.control.Flush()
}

// Flush implements [http.Flusher].
func (r *response) Flush() { _ = r.FlushError() }

// extendDeadline gives the client time to read what is about to be written. With HTTP/1
// it sets a deadline once in a while. The returned function says that the write is
// done.
func (r *response) extendDeadline() (written func()) {
	if r.http2 {
		// With HTTP/2 a deadline that passes ends the stream even if nothing is
		// being written, as on a quiet watch.
		r.setDeadline(time.Now().Add(r.timeout))
		if r.timer == nil {
			r.timer = time.AfterFunc(r.timeout, r.expired)
		} else {
			r.timer.Reset(r.timeout)
		}
		return func() {
			r.timer.Stop()
			r.setDeadline(time.Time{})
		}
	}
	if now := time.Now(); now.Sub(r.renewed) >= r.timeout/16 {
		r.renewed = now
		_ = r.control.SetWriteDeadline(now.Add(r.timeout)) // a writer without deadlines has no client to wait for
	}
	return func() {}
}

func (r *response) setDeadline(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = until
}

// expired ends the stream if a write is still in progress. It does nothing once the
// handler has returned.
func (r *response) expired() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.until.IsZero() && !time.Now().Before(r.until) {
		_ = r.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// finish gives the client time to read what is left when the handler returns.
func (r *response) finish() {
	if r.http2 {
		_ = r.control.SetWriteDeadline(time.Now().Add(r.timeout))
	}
}
