package cluster

import (
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

// tokenReloader reads a token file again when the server rejects the token.
// client-go reads it once a minute, which suffices for a token that is replaced
// before it expires, but not for one that was revoked.
type tokenReloader struct {
	next http.RoundTripper
	file string
	last *atomic.Pointer[replacement]
}

// replacement is a token that replaces one that client-go still uses.
type replacement struct{ old, token string }

const bearer = "Bearer "

// RoundTrip implements [http.RoundTripper]. If the server rejects a token other
// than the one in the file, it repeats the request with that, unless the request
// has a body.
func (r tokenReloader) RoundTrip(req *http.Request) (*http.Response, error) {
	given := req.Header.Get("Authorization")
	sent := given
	if last := r.last.Load(); last != nil && given == last.old { // client-go has not read it yet
		sent, req = last.token, withAuthorization(req, last.token)
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(sent, bearer) {
		return resp, err
	}
	raw, readErr := os.ReadFile(r.file)
	token := bearer + strings.TrimSpace(string(raw))
	if readErr != nil || token == bearer || token == sent {
		return resp, nil
	}
	r.last.Store(&replacement{given, token})
	if req.Body != nil && req.Body != http.NoBody {
		return resp, nil // only the caller can repeat it
	}
	resp.Body.Close()
	return r.next.RoundTrip(withAuthorization(req, token))
}

func withAuthorization(req *http.Request, authorization string) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", authorization)
	return req
}

// WrappedRoundTripper implements the interface by which client-go finds the
// underlying transport.
func (r tokenReloader) WrappedRoundTripper() http.RoundTripper { return r.next }
