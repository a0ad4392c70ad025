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
	"github.com/tidings-io/tidings/kubeapi/internal/reply"
)

// Options of a [Handler].
type Options struct {
	// Cluster says which cluster a request is for. Its error is answered, as a
	// Status if it is one.
	Cluster func(context.Context) (*cluster.Cluster, error)
	// Credit puts the credentials of who makes a request into the headers of one
	// to the cluster, and says whether there are any. The headers have none. nil
	// means [OwnCredentials].
	Credit func(from *http.Request, to http.Header) bool
	// Wrote, if not nil, is called when a caller has changed what the cluster
	// serves: a CustomResourceDefinition or an APIService.
	Wrote func(*cluster.Cluster)
	// Logger gets what goes wrong. nil means slog.Default().
	Logger *slog.Logger
}

// Handler hands on requests; their paths are those of the cluster, without any
// prefix. It may be used by any number of goroutines.
type Handler struct {
	opts Options
	log  *slog.Logger

	mu   sync.Mutex
	ways map[string]*ways // by the name of the cluster
}

// ways lead to a cluster, without credentials.
type ways struct {
	cluster  *cluster.Cluster
	requests http.RoundTripper
	upgrades http.RoundTripper // which HTTP/2 does not have
}

// New returns a Handler. [Handler.Close] must be called in the end.
func New(opts Options) *Handler {
	h := &Handler{opts: opts, log: opts.Logger, ways: map[string]*ways{}}
	if h.log == nil {
		h.log = slog.Default()
	}
	if h.opts.Credit == nil {
		h.opts.Credit = OwnCredentials
	}
	return h
}

// Close closes idle connections. Requests under way are not disturbed.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, w := range h.ways {
		w.close()
		delete(h.ways, name)
	}
}

// to returns the ways to a cluster. Those to one that had its name before are
// given up.
func (h *Handler) to(c *cluster.Cluster) (*ways, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.ways[c.Name()]
	if old != nil && old.cluster == c {
		return old, nil
	}
	// Nothing but the address, how to get there and whom to trust is taken over.
	config := rest.AnonymousClientConfig(c.Config())
	config.DisableCompression = true // it is between the caller and the cluster
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
	w := &ways{cluster: c, requests: requests, upgrades: upgrades}
	h.ways[c.Name()] = w
	return w, nil
}

func (w *ways) close() {
	for _, t := range []http.RoundTripper{w.requests, w.upgrades} {
		(&http.Client{Transport: t}).CloseIdleConnections()
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
	if !h.opts.Credit(r, credentials) {
		reply.Error(w, uncredited(r))
		return
	}
	to, err := h.to(c)
	if err != nil {
		reply.Error(w, err)
		return
	}
	proxy := &httputil.ReverseProxy{
		Transport:     to.requests,
		FlushInterval: -1, // logs and watches are to arrive when they are sent
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
				panic(http.ErrAbortHandler) // nobody listens
			}
			h.log.Warn("a request could not be handed on", "cluster", c.Name(), "method", r.Method, "err", err)
			reply.Error(w, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s does not answer", c.Name())))
		},
	}
	if r.Header.Get("Upgrade") != "" {
		proxy.Transport = to.upgrades
	}
	proxy.ServeHTTP(w, r)
}

// clean takes out of a request what says who makes it, and what is the browser's
// business with the mirror.
func clean(h http.Header) {
	for name := range h {
		switch canonical := http.CanonicalHeaderKey(name); {
		case canonical == "Authorization", canonical == "Cookie", canonical == "X-Real-Ip",
			strings.HasPrefix(canonical, "Impersonate-"),
			strings.HasPrefix(canonical, "X-Remote-"): // of a front proxy, which the mirror is not
			delete(h, name)
		}
	}
}

// OwnCredentials takes those that a request itself carries: Authorization, and
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
	errCertificate = errors.New("this is for the cluster itself to answer, under your own credentials, and a client certificate cannot be handed on: use a bearer token, or the cluster's own address")
	errNobody      = "this is for the cluster itself to answer, under your own credentials, and there are none that could be handed on: use a bearer token, or the cluster's own address"
)

// uncredited is why a request without credentials is not handed on.
func uncredited(r *http.Request) error {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errCertificate)
	}
	return apierrors.NewUnauthorized(errNobody)
}

// definesResources says whether a request writes what discovery is made of.
func definesResources(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead &&
		(strings.HasPrefix(r.URL.Path, "/apis/apiextensions.k8s.io/") || strings.HasPrefix(r.URL.Path, "/apis/apiregistration.k8s.io/"))
}
