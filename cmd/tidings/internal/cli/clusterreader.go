package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidings-io/tidings/cluster"
)

// clusterReader connects the builder of cli-runtime to clusters. Its requests end
// with ctx, and it counts the bytes of the responses.
type clusterReader struct {
	ctx      context.Context
	screen   *screen
	warnings rest.WarningHandler
	received atomic.Int64
	// wrap, if not nil, wraps the transport of a cluster.
	wrap func(*cluster.Cluster, http.RoundTripper) http.RoundTripper
}

func newClusterReader(ctx context.Context, g *globals) *clusterReader {
	return &clusterReader{
		ctx: ctx, screen: g.screen,
		warnings: rest.NewWarningWriter(g.screen.logWriter(), rest.WarningWriterOptions{Deduplicate: true, Color: g.screen.colour}),
	}
}

// of returns the getter of a cluster. It makes requests with the cluster's own
// client, which has the credentials.
func (r *clusterReader) of(c *cluster.Cluster) *clusterGetter {
	rt := http.RoundTripper(&transport{r, c.HTTPClient()})
	if r.wrap != nil {
		rt = r.wrap(c, rt)
	}
	g := &clusterGetter{ctx: r.ctx, cluster: c, config: &rest.Config{
		Host:           c.BaseURL().String(),
		Transport:      rt,
		QPS:            -1, // no limit: the server has its own
		WarningHandler: r.warnings,
	}}
	g.discovery = sync.OnceValues(func() (discovery.CachedDiscoveryInterface, error) {
		d, err := discovery.NewDiscoveryClientForConfig(g.config)
		if err != nil {
			return nil, err
		}
		return orderedDiscovery{memory.NewMemCacheClient(d)}, nil
	})
	return g
}

// clusterGetter is what the builder of cli-runtime needs to know of a cluster. It
// implements genericclioptions.RESTClientGetter.
type clusterGetter struct {
	ctx       context.Context
	cluster   *cluster.Cluster
	config    *rest.Config
	discovery func() (discovery.CachedDiscoveryInterface, error)
}

func (g *clusterGetter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

func (g *clusterGetter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery()
}

func (g *clusterGetter) ToRESTMapper() (meta.RESTMapper, error) {
	d, err := g.discovery()
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(d), d, func(string) {}), nil
}

// ToRawKubeConfigLoader is part of the interface, but the namespace is already known.
func (g *clusterGetter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*api.NewConfig(), nil)
}

// orderedDiscovery returns the resources in the order of the server's groups. The
// cache of client-go has no order, and neither would "all".
type orderedDiscovery struct {
	discovery.CachedDiscoveryInterface
}

func (d orderedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return discovery.ServerGroupsAndResources(d)
}

// client returns a client for any path of the server.
func (g *clusterGetter) client() (*rest.RESTClient, error) {
	config := rest.CopyConfig(g.config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.UnversionedRESTClientFor(config)
}

// transport makes the requests of a clusterReader.
type transport struct {
	reader *clusterReader
	client *http.Client
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// client-go makes an HTTP client of its own, which would follow every redirect.
	var via []*http.Request
	for r := req; r.Response != nil; r = r.Response.Request {
		via = append(via, r.Response.Request)
	}
	if slices.Reverse(via); len(via) > 0 {
		if err := t.client.CheckRedirect(req, via); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(t.reader.ctx, func() { cancel(context.Cause(t.reader.ctx)) })
	end := func() { stop(); cancel(nil) }
	resp, err := t.client.Transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			// client-go would try again for ten seconds, at each of several requests.
			err = errors.New(err.Error())
		}
		return nil, err
	}
	resp.Body = &countedBody{resp.Body, &t.reader.received, end}
	return resp, nil
}

type countedBody struct {
	io.ReadCloser
	received *atomic.Int64
	end      func()
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received.Add(int64(n))
	return n, err
}

func (b *countedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// showProgress shows on a terminal how much has been received, until the returned
// function is called.
func (r *clusterReader) showProgress(what string) (stop func()) {
	if !r.screen.streams.ErrTerminal {
		return func() {}
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer r.screen.showProgress("")
		for wait := progressAfter; ; wait = progressEvery {
			select {
			case <-time.After(wait):
				r.screen.showProgress(fmt.Sprintf("%s: %s kB so far", what, thousands(r.received.Load()/1000)))
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
