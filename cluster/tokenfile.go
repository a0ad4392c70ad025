package cluster

import (
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

// rotation knows that a token is in a file, and reads that again when the token is
// refused. client-go reads it once a minute, which is soon enough for a token that
// is replaced before it ends, and not for one that was taken back.
type rotation struct {
	next http.RoundTripper
	file string
	last *atomic.Pointer[replaced]
}

// replaced is the token that client-go has, and the one that is in its place.
type replaced struct{ old, token string }

const bearer = "Bearer "

// RoundTrip implements [http.RoundTripper]. A request that is refused for a token
// which is not the one in the file is made again with that, if it has no body.
func (r rotation) RoundTrip(req *http.Request) (*http.Response, error) {
	given := req.Header.Get("Authorization")
	sent := given
	if last := r.last.Load(); last != nil && given == last.old { // client-go has not read it yet
		sent, req = last.token, with(req, last.token)
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(sent, bearer) {
		return resp, err
	}
	raw, unread := os.ReadFile(r.file)
	token := bearer + strings.TrimSpace(string(raw))
	if unread != nil || token == bearer || token == sent {
		return resp, nil
	}
	r.last.Store(&replaced{given, token})
	if req.Body != nil && req.Body != http.NoBody {
		return resp, nil // it is up to who has the body
	}
	resp.Body.Close()
	return r.next.RoundTrip(with(req, token))
}

func with(req *http.Request, authorization string) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", authorization)
	return req
}

// WrappedRoundTripper is how client-go finds the transport that this one is of.
func (r rotation) WrappedRoundTripper() http.RoundTripper { return r.next }
