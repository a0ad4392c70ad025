package faultproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Exchange is a request that the proxy handles.
type Exchange struct {
	Request Request
	HTTP    *http.Request
	W       http.ResponseWriter

	proxy   *Proxy
	cancel  context.CancelCauseFunc
	removed <-chan struct{} // closed when the rule is removed; nil without a rule
}

// Action applies a fault to a request. It responds, breaks the connection, or passes
// on the API server's response or a part of it.
type Action func(*Exchange)

// Forward sends the request to the API server. If that fails, Forward responds with
// an error, as a load balancer does, and returns nil.
func (x *Exchange) Forward() *http.Response {
	resp, err := x.proxy.forward(x.HTTP)
	if err != nil {
		if errors.Is(context.Cause(x.HTTP.Context()), errCut) || x.HTTP.Context().Err() != nil {
			x.Abort()
		}
		http.Error(x.W, "upstream connect error or disconnect/reset before headers", http.StatusBadGateway)
		return nil
	}
	return resp
}

// Head passes on the status and headers of a response. The caller says whether the
// length may change.
func (x *Exchange) Head(resp *http.Response, sameLength bool) {
	for name, values := range resp.Header {
		if name == "Connection" || name == "Transfer-Encoding" || name == "Content-Length" && !sameLength {
			continue
		}
		x.W.Header()[name] = values
	}
	x.W.WriteHeader(resp.StatusCode)
	x.Flush()
}

// Flush sends what has been written so far.
func (x *Exchange) Flush() { _ = http.NewResponseController(x.W).Flush() }

// Abort breaks the connection, or with HTTP/2 the stream. It does not return.
func (x *Exchange) Abort() { panic(http.ErrAbortHandler) }

// Wait returns when the rule is removed or the client disconnects.
func (x *Exchange) Wait() {
	select {
	case <-x.removed:
	case <-x.HTTP.Context().Done():
	}
}

// copy passes on a body as it arrives. It breaks the connection if the upstream does.
func (x *Exchange) copy(body io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := x.W.Write(buf[:n]); err != nil {
				x.Abort()
			}
			x.Flush()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			x.Abort()
		}
	}
}

// Pass passes on the API server's response.
func Pass(x *Exchange) {
	resp := x.Forward()
	if resp == nil {
		return
	}
	defer resp.Body.Close()
	x.Head(resp, true)
	x.copy(resp.Body)
}

// Break breaks the connection, or with HTTP/2 the stream, without a response.
func Break() Action { return (*Exchange).Abort }

// Hang does not respond until the rule is removed, and then breaks the connection.
func Hang() Action {
	return func(x *Exchange) {
		x.Wait()
		x.Abort()
	}
}

// Delay applies another action after a delay.
func Delay(d time.Duration, then Action) Action {
	return func(x *Exchange) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			then(x)
		case <-x.HTTP.Context().Done():
		}
	}
}

// Answer responds to every request with the same response.
func Answer(code int, contentType, body string) Action {
	return func(x *Exchange) {
		x.W.Header().Set("Content-Type", contentType)
		x.W.Header().Set("Content-Length", strconv.Itoa(len(body)))
		x.W.WriteHeader(code)
		_, _ = io.WriteString(x.W, body)
	}
}

// Status responds with a Status, and with details.retryAfterSeconds as a header, too.
func Status(err apierrors.APIStatus) Action {
	status := err.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	body, broken := json.Marshal(status)
	if broken != nil {
		panic(broken) // a Status is always JSON
	}
	return func(x *Exchange) {
		if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
			x.W.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
		}
		Answer(int(status.Code), "application/json", string(body))(x)
	}
}

// RetryAfter responds like a load balancer: with a code, a Retry-After header and a
// body that is not a Status. The value is used as it is: seconds, a date or nonsense.
func RetryAfter(code int, value string) Action {
	return func(x *Exchange) {
		x.W.Header().Set("Retry-After", value)
		http.Error(x.W, http.StatusText(code), code)
	}
}

// Cut breaks the connection after n bytes of the response's body.
func Cut(n int64) Action { return cut(n, (*Exchange).Abort) }

// Truncate ends a response cleanly after n bytes of its body. Only the missing rest
// shows that it is incomplete.
func Truncate(n int64) Action { return cut(n, func(*Exchange) {}) }

func cut(n int64, end func(*Exchange)) Action {
	return func(x *Exchange) {
		x.HTTP.Header.Del("Accept-Encoding") // bytes of what the client reads, not of gzip
		resp := x.Forward()
		if resp == nil {
			return
		}
		defer resp.Body.Close()
		x.Head(resp, false)
		x.copy(io.LimitReader(resp.Body, n))
		end(x)
	}
}

// Freeze sends n bytes of the response's body and then nothing, on an open
// connection, until the rule is removed. Then it breaks the connection.
func Freeze(n int64) Action {
	return cut(n, func(x *Exchange) {
		x.Wait()
		x.Abort()
	})
}

// CorruptGzip compresses the response with gzip, as API servers do with long ones,
// and replaces the block after the header with one of an unknown type.
func CorruptGzip() Action {
	return func(x *Exchange) {
		accepts := strings.Contains(x.HTTP.Header.Get("Accept-Encoding"), "gzip")
		x.HTTP.Header.Del("Accept-Encoding")
		resp := x.Forward()
		if resp == nil {
			return
		}
		defer resp.Body.Close()
		if !accepts {
			x.Head(resp, true)
			x.copy(resp.Body)
			return
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := io.Copy(w, resp.Body)
		if err != nil || w.Close() != nil {
			x.Abort()
		}
		const header = 10 // RFC 1952
		packed.Bytes()[header] |= 0b110
		resp.Header.Set("Content-Encoding", "gzip")
		x.Head(resp, false)
		x.copy(&packed)
	}
}
