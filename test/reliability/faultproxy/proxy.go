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

// Proxy is a proxy in front of an API server that breaks requests by its rules. Its
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
// interface. It uses only the address and the server's authority of config. It serves
// HTTP/2 and HTTP/1.1 over TLS. The caller must call [Proxy.Close].
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
		// Responses are not changed: they are compressed if the client accepts it.
		transport: &http.Transport{TLSClientConfig: authority, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 16},
		counts:    map[Request]int{}, open: map[*Exchange]struct{}{},
	}
	p.server = &http.Server{
		Handler:   p,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{serving.pair}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), // it would report every deliberately broken connection
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

// certificate returns the certificate of all proxies of a process: generating one
// takes longer than the rest of a proxy's start.
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

// Config returns config with the proxy's address. The credentials stay the same.
func (p *Proxy) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = "https://" + p.Addr()
	config.TLSClientConfig.CAData, config.CAFile, config.ServerName, config.Insecure = p.ca, "", "", false
	return config
}

// Add adds a rule and returns a function that removes it, and ends the requests that
// its action still delays. The first rule that matches a request applies.
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

// Requests returns the number of requests since the start or the last reset,
// including those in progress.
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

// CutOpen breaks the matching requests in progress, in the middle of their responses,
// as a load balancer does when it restarts. It returns their number. A nil match
// matches all.
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

// Open returns the number of matching requests in progress.
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

// Retarget sends new requests to another server with the same authority. Requests in
// progress continue.
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

// Close breaks all requests in progress and returns when the proxy has ended.
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
