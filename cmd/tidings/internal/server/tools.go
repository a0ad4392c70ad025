package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/agents"
)

// maxToolsBody is the size of a request for tools. Their arguments are short.
const maxToolsBody = 64 << 10

// serveTools answers a request of the Model Context Protocol. Each read of a tool is a
// request of its own: it is limited, authenticated, authorized and audited as if the caller
// had sent it.
func (s *Server) serveTools(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin(r); err != nil {
		failWith(w, err)
		return
	}
	control := http.NewResponseController(w)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxToolsBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		fail(w, http.StatusRequestEntityTooLarge, &problem{Reason: "Invalid", Error: "the body of a request for tools may have 64 kB"})
		return
	} else if err != nil {
		fail(w, http.StatusBadRequest, &problem{Reason: "Invalid", Error: "the body cannot be read"})
		return
	}
	// A deadline that passes while the request is served would end it.
	_ = control.SetReadDeadline(time.Time{})
	var message struct {
		Method string `json:"method"`
	}
	if body = bytes.TrimSpace(body); len(body) > 0 && body[0] == '[' {
		fail(w, http.StatusBadRequest, &problem{Reason: "Invalid", Error: "send one message at a time: batches are not part of the protocol any more"})
		return
	}
	_ = json.Unmarshal(body, &message) // what is wrong with it is answered by the protocol
	ctx, cancel := context.WithTimeoutCause(r.Context(), s.opts.RequestTimeout+agents.MaxWait, errTooLong)
	if message.Method == "subscriptions/listen" {
		cancel()
		ctx, cancel = context.WithCancel(r.Context())
		defer context.AfterFunc(s.draining, cancel)()
	}
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	rt := routeOf(r)
	tools := agents.NewServer(agents.Options{
		Transport: onBehalf{InProcess{Handler: s.handler, From: r}, rt.header}, Base: &url.URL{Scheme: "http", Host: "localhost"},
		Cluster: rt.name, Version: s.opts.Version, Logger: s.log, Context: ctx,
	})
	mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxToolsBody, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // hostAllowed has the rules
	}).ServeHTTP(w, r)
}

// sameOrigin refuses requests of web pages of another origin: a browser may add credentials
// that are not the page's.
func sameOrigin(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	origin := r.Header.Get("Origin")
	from, err := url.Parse(origin)
	if site != "cross-site" && site != "same-site" && (origin == "" || err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host)) {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("a page of another origin may not use tools"))
}

// onBehalf makes requests with the credentials of another one.
type onBehalf struct {
	InProcess
	header http.Header // of the other one, as it was received
}

// credentialHeaders are the headers that say who makes a request.
func credentialHeaders(name string) bool {
	return name == "Authorization" || name == "User-Agent" || strings.HasPrefix(name, "Impersonate-")
}

// RoundTrip implements [http.RoundTripper].
func (t onBehalf) RoundTrip(r *http.Request) (*http.Response, error) {
	for name, values := range t.header {
		if credentialHeaders(name) {
			r.Header[name] = values
		}
	}
	return t.InProcess.RoundTrip(r)
}
