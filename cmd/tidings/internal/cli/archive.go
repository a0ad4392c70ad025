package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// archive takes the place of the API server of a cluster of which there is only the
// history. It answers what that knows: which resources there were. Everything else is
// refused.
type archive struct{ documents map[string]any } // by path

// RoundTrip implements [http.RoundTripper].
func (a archive) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	document, ok := a.documents[path]
	switch {
	case ok && req.Method == http.MethodGet:
		return respond(req, http.StatusOK, document), nil
	case path == "/readyz":
		return respond(req, http.StatusOK, "ok"), nil
	}
	err := apierrors.NewServiceUnavailable("of this cluster there is only the history, and it has no answer to this")
	return respond(req, http.StatusServiceUnavailable, err.Status()), nil
}

// respond returns a response with a value as JSON.
func respond(req *http.Request, code int, value any) *http.Response {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // cannot happen: the values are of known types
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}
