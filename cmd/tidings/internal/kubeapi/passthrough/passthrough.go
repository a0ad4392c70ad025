package passthrough

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/internal/reply"
)

// Options configure a [Handler].
type Options struct {
	// Cluster returns the cluster of a request. Its error is the answer, as a Status
	// if it is one.
	Cluster func(context.Context) (*cluster.Cluster, error)
	// SetCredentials adds the caller's credentials to the headers of the request to
	// the cluster, which have none, and reports whether there are any. nil means
	// [OwnCredentials].
	SetCredentials func(from *http.Request, to http.Header) bool
	// Wrote, if not nil, is called when a caller has changed the resources that the
	// cluster serves, by writing a CustomResourceDefinition or an APIService.
	Wrote func(*cluster.Cluster)
	// Logger logs errors. nil means slog.Default().
	Logger *slog.Logger
}

// Handler forwards requests. Their paths are those of the cluster, without any prefix. It
// is safe for concurrent use.
type Handler struct {
	opts Options
	log  *slog.Logger

	mu        sync.Mutex
	byCluster map[string]*transports // by the name of the cluster
}

// transports are the transports to a cluster, without credentials.
type transports struct {
	cluster  *cluster.Cluster
	requests http.RoundTripper
	upgrades http.RoundTripper // HTTP/1.1: HTTP/2 has no upgrades
}

// New returns a Handler. The caller must call [Handler.Close] in the end.
func New(opts Options) *Handler {
	h := &Handler{opts: opts, log: opts.Logger, byCluster: map[string]*transports{}}
	if h.log == nil {
		h.log = slog.Default()
	}
	if h.opts.SetCredentials == nil {
		h.opts.SetCredentials = OwnCredentials
	}
	return h
}

// Close closes idle connections. It does not affect requests in progress.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, w := range h.byCluster {
		w.close()
		delete(h.byCluster, name)
	}
}

// transports returns the transports to a cluster. It closes those to a previous cluster
// of the same name.
func (h *Handler) transports(c *cluster.Cluster) (*transports, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.byCluster[c.Name()]
	if old != nil && old.cluster == c {
		return old, nil
	}
	// Copy only the address, the proxy and the trusted certificates.
	config := rest.AnonymousClientConfig(c.Config())
	config.DisableCompression = true // the caller and the cluster negotiate it
	requests, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to cluster %s: %w", c.Name(), err)
	}
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	upgrades, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to cluster %s: %w", c.Name(), err)
	}
	if old != nil {
		old.close()
	}
	w := &transports{cluster: c, requests: requests, upgrades: upgrades}
	h.byCluster[c.Name()] = w
	return w, nil
}

func (t *transports) close() {
	for _, rt := range []http.RoundTripper{t.requests, t.upgrades} {
		(&http.Client{Transport: rt}).CloseIdleConnections()
	}
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		reply.Error(w, apierrors.NewMethodNotSupported(schema.GroupResource{}, r.Method))
		return
	}
	c, err := h.opts.Cluster(r.Context())
	if err != nil {
		reply.Error(w, err)
		return
	}
	credentials := http.Header{}
	if !h.opts.SetCredentials(r, credentials) {
		reply.Error(w, noCredentials(r))
		return
	}
	upstream, err := h.transports(c)
	if err != nil {
		reply.Error(w, err)
		return
	}
	proxy := &httputil.ReverseProxy{
		Transport:     upstream.requests,
		FlushInterval: -1, // forward logs and watches at once
		ErrorLog:      slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(c.BaseURL())
			clean(p.Out.Header)
			for name, values := range credentials {
				p.Out.Header[name] = values
			}
			if host, _, err := net.SplitHostPort(p.In.RemoteAddr); err == nil {
				p.Out.Header.Set("X-Forwarded-For", host) // for the cluster's audit log
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			reply.Relocate(resp.Header, r)
			if h.opts.Wrote != nil && resp.StatusCode < 300 && definesResources(r) {
				h.opts.Wrote(c)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			switch r.Context().Err() {
			case nil:
			case context.DeadlineExceeded:
				reply.Error(w, apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
				return
			default:
				panic(http.ErrAbortHandler) // the client is gone
			}
			h.log.Warn("a request could not be passed through", "cluster", c.Name(), "method", r.Method, "err", err)
			reply.Error(w, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s does not answer", c.Name())))
		},
	}
	if r.Header.Get("Upgrade") != "" {
		proxy.Transport = upstream.upgrades
	}
	proxy.ServeHTTP(w, r)
}

// clean removes the headers that identify the caller, and the browser's cookies for the
// mirror.
func clean(h http.Header) {
	for name := range h {
		switch canonical := http.CanonicalHeaderKey(name); {
		case canonical == "Authorization", canonical == "Cookie", canonical == "X-Real-Ip",
			strings.HasPrefix(canonical, "Impersonate-"),
			strings.HasPrefix(canonical, "X-Remote-"): // from a front proxy, which the mirror is not
			delete(h, name)
		}
	}
}

// OwnCredentials copies the credentials in the request's own headers: Authorization and
// Impersonate-….
func OwnCredentials(from *http.Request, to http.Header) bool {
	for name, values := range from.Header {
		if canonical := http.CanonicalHeaderKey(name); canonical == "Authorization" || strings.HasPrefix(canonical, "Impersonate-") {
			to[name] = values
		}
	}
	return to.Get("Authorization") != ""
}

var (
	errCertificate   = errors.New("only the cluster can answer this request, with your own credentials, and a client certificate cannot be passed through: use a bearer token, or the cluster's own address")
	errNoCredentials = "only the cluster can answer this request, with your own credentials, and the request has none that can be passed through: use a bearer token, or the cluster's own address"
)

// noCredentials is the error of a request whose credentials cannot be passed through.
func noCredentials(r *http.Request) error {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errCertificate)
	}
	return apierrors.NewUnauthorized(errNoCredentials)
}

// definesResources reports whether a request writes objects that affect discovery.
func definesResources(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead &&
		(strings.HasPrefix(r.URL.Path, "/apis/apiextensions.k8s.io/") || strings.HasPrefix(r.URL.Path, "/apis/apiregistration.k8s.io/"))
}
