package faultproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// Proxy stands in front of an API server and breaks what its rules say. Its
// methods may be called from any goroutine.
type Proxy struct {
	upstream  *url.URL
	transport *http.Transport
	listener  net.Listener
	server    *http.Server
	ca        []byte
	served    chan struct{}

	mu     sync.Mutex
	rules  []*Rule
	counts map[Request]int
	open   map[*Exchange]struct{}
}

// New starts a proxy in front of the server of config, on a port of the loopback
// interface. Of config only the address and the server's authority are used. It
// serves HTTP/2 and HTTP/1.1 over TLS. [Proxy.Close] must be called in the end.
func New(config *rest.Config) (*Proxy, error) {
	upstream, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("fault proxy: address of the API server: %w", err)
	}
	authority, err := rest.TLSConfigFor(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{
		CAData: config.CAData, CAFile: config.CAFile, ServerName: config.ServerName, Insecure: config.Insecure,
	}})
	if err != nil {
		return nil, fmt.Errorf("fault proxy: authority of the API server: %w", err)
	}
	serving, err := certificate()
	if err != nil {
		return nil, fmt.Errorf("fault proxy: certificate: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	p := &Proxy{
		upstream: upstream, listener: l, ca: serving.pem, served: make(chan struct{}),
		// Answers go through as they are, compressed if the client wants that.
		transport: &http.Transport{TLSClientConfig: authority, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 16},
		counts:    map[Request]int{}, open: map[*Exchange]struct{}{},
	}
	p.server = &http.Server{
		Handler:   p,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{serving.pair}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), // it would tell of every connection that is broken on purpose
	}
	go func() {
		defer close(p.served)
		_ = p.server.ServeTLS(l, "", "")
	}()
	return p, nil
}

type servingCert struct {
	pem  []byte // of the certificate and of the authority that has signed it
	pair tls.Certificate
}

// certificate is what all proxies of a process serve with: making one takes longer
// than all else that a proxy takes to start.
var certificate = sync.OnceValues(func() (*servingCert, error) {
	loopback := net.IPv4(127, 0, 0, 1)
	cert, key, err := certutil.GenerateSelfSignedCertKey(loopback.String(), []net.IP{loopback}, []string{"localhost"})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &servingCert{cert, pair}, err
})

// Addr is host and port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Config is config with the proxy in the place of the API server. Credentials
// stay what they are.
func (p *Proxy) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = "https://" + p.Addr()
	config.TLSClientConfig.CAData, config.CAFile, config.ServerName, config.Insecure = p.ca, "", "", false
	return config
}

// Add adds a rule and returns how to take it away again, which also ends what its
// action still holds back. The first rule that takes a request counts.
func (p *Proxy) Add(rule *Rule) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rule.gone = make(chan struct{})
	p.rules = append(slices.Clone(p.rules), rule)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(slices.Clone(p.rules), func(r *Rule) bool { return r == rule })
		close(rule.gone)
	})
}

// Requests counts the requests that have come in since the start or the last
// reset, also those that are still under way.
func (p *Proxy) Requests(match func(Request) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for req, times := range p.counts {
		if match == nil || match(req) {
			n += times
		}
	}
	return n
}

// ResetCounts sets the counts of [Proxy.Requests] to zero.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

// CutOpen breaks the requests under way that match, in the middle of their
// answers, as a load balancer that is restarted does. It returns how many. A
// match of nil matches all.
func (p *Proxy) CutOpen(match func(Request) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.open {
		if match == nil || match(x.Request) {
			x.cancel(errCut)
			n++
		}
	}
	return n
}

// Open counts the requests under way that match.
func (p *Proxy) Open(match func(Request) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.open {
		if match == nil || match(x.Request) {
			n++
		}
	}
	return n
}

// Retarget has new requests go to another server with the same authority; those
// under way go on.
func (p *Proxy) Retarget(host string) error {
	u, err := url.Parse(host)
	if err != nil {
		return fmt.Errorf("fault proxy: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = u
	return nil
}

// Close breaks everything that is under way and returns when the proxy is gone.
func (p *Proxy) Close() error {
	p.CutOpen(nil)
	err := p.server.Close()
	<-p.served
	p.transport.CloseIdleConnections()
	return err
}

var errCut = errors.New("cut by the fault proxy")

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &Exchange{Request: requestOf(r), HTTP: r, W: w, proxy: p}
	var ctx context.Context
	ctx, x.cancel = context.WithCancelCause(r.Context())
	defer x.cancel(nil)
	x.HTTP = r.WithContext(ctx)

	p.mu.Lock()
	p.counts[x.Request]++
	p.open[x] = struct{}{}
	rules := p.rules
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, x)
	}()
	action := Action(Pass)
	for _, rule := range rules {
		if rule.takes(x.Request, x.HTTP) {
			action, x.removed = rule.Action, rule.gone
			break
		}
	}
	action(x)
	if errors.Is(context.Cause(ctx), errCut) {
		panic(http.ErrAbortHandler)
	}
}

func (p *Proxy) forward(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = upstream.Scheme, upstream.Host
	out.URL.Path = upstream.Path + r.URL.Path
	if upstream.Path == "/" {
		out.URL.Path = r.URL.Path
	}
	out.Host, out.RequestURI = upstream.Host, ""
	if r.ContentLength == 0 {
		out.Body = nil
	}
	for _, hop := range []string{"Connection", "Keep-Alive", "Te", "Upgrade"} {
		out.Header.Del(hop)
	}
	return p.transport.RoundTrip(out)
}
