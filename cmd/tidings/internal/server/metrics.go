package server

import (
	"crypto/tls"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	informermetrics "github.com/tidings-io/tidings/informer/metrics"
)

// metrics is the content of /metrics. docs/metrics.md is generated from it.
type metrics struct {
	registry  *prometheus.Registry
	handler   http.Handler
	requests  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	resources resourceLabels
}

func newMetrics(s *Server) (*metrics, error) {
	registry := prometheus.NewRegistry()
	out := &metrics{
		registry: registry,
		handler:  promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidings_http_requests_total", Help: "Requests answered; code 599 means that the response was cut off.",
		}, []string{"route", "method", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidings_http_request_duration_seconds", Help: "Time to answer requests that are not watches. The resource is `other` if it is not mirrored, and empty if the request is for none.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"verb", "group", "resource", "code"}),
	}
	for _, c := range []prometheus.Collector{
		out.requests, out.latency, buildInfo(s.opts), certificateCollector{s.opts.TLS}, limitsCollector{s}, s.memory, s.budget, s.tables, clustersCollector{s.mirror}, informermetrics.NewCollector(statuses(s.mirror)),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	if s.opts.Gate != nil {
		if err := registry.Register(s.opts.Gate); err != nil {
			return nil, err
		}
	}
	for _, c := range s.fleetCollectors() {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	if s.opts.Reads.History != nil {
		if err := registry.Register(s.opts.Reads.History); err != nil {
			return nil, err
		}
	}
	if s.opts.Audit != nil {
		return out, registry.Register(s.opts.Audit)
	}
	return out, nil
}

// buildInfo is a constant that tells which program this is.
func buildInfo(o Options) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidings_build_info", Help: "Always 1. The labels say which program runs.",
		ConstLabels: prometheus.Labels{"version": o.Version, "revision": o.Revision, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// request counts one request. A client may invent methods, verbs and resources, and a
// cluster statuses, so none of them is used as a label unchecked.
func (m *metrics) request(rt route, method string, code int, took time.Duration) {
	if method != http.MethodGet && method != http.MethodHead {
		method = "other"
	}
	status := "other"
	if code == statusAborted || http.StatusText(code) != "" {
		status = strconv.Itoa(code)
	}
	m.requests.WithLabelValues(rt.pattern, method, status).Inc()
	if !rt.watch {
		resource := m.resources.of(rt)
		m.latency.WithLabelValues(verbLabel(rt.action.Verb), resource.Group, resource.Resource, status).Observe(took.Seconds())
	}
}

// verbLabel is "other" for a verb that a caller has made up, and for requests that were
// refused before they had one.
func verbLabel(verb string) string {
	switch verb {
	case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection":
		return verb
	}
	return "other"
}

// maxResourceLabels bounds the resources in labels, since users may define resources.
// A typical cluster has about 100.
const maxResourceLabels = 250

// resourceLabels are the resources that are used as labels.
type resourceLabels struct {
	mu   sync.RWMutex
	used map[schema.GroupResource]bool
}

// of returns the labels of a request: the resource if it is mirrored, so that it exists.
func (l *resourceLabels) of(rt route) schema.GroupResource {
	gr := schema.GroupResource{Group: rt.action.Group, Resource: rt.action.Resource}
	other := schema.GroupResource{Resource: "other"}
	switch {
	case gr.Resource == "":
		return schema.GroupResource{}
	case rt.cluster == nil || !rt.cluster.Mirrors(gr.WithVersion(rt.action.Version), rt.action.Namespace):
		return other
	}
	l.mu.RLock()
	used, full := l.used[gr], len(l.used) >= maxResourceLabels
	l.mu.RUnlock()
	switch {
	case used:
		return gr
	case full:
		return other
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used == nil {
		l.used = map[schema.GroupResource]bool{}
	}
	l.used[gr] = true
	return gr
}

// certificateCollector collects when the serving certificate expires. It may have been
// replaced since the last scrape.
type certificateCollector struct{ config *tls.Config }

var certificateDesc = prometheus.NewDesc("tidings_tls_certificate_expiry_timestamp_seconds", "When the serving certificate expires.", nil, nil)

// Describe implements [prometheus.Collector].
func (c certificateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- certificateDesc }

// Collect implements [prometheus.Collector].
func (c certificateCollector) Collect(ch chan<- prometheus.Metric) {
	var cert *tls.Certificate
	switch {
	case c.config == nil:
	case c.config.GetCertificate != nil:
		cert, _ = c.config.GetCertificate(&tls.ClientHelloInfo{}) // without one, clients see the error
	case len(c.config.Certificates) > 0:
		cert = &c.config.Certificates[0]
	}
	if cert != nil && cert.Leaf != nil {
		ch <- prometheus.MustNewConstMetric(certificateDesc, prometheus.GaugeValue, float64(cert.Leaf.NotAfter.Unix()))
	}
}

// limitsCollector collects the state of limits when it is scraped.
type limitsCollector struct{ server *Server }

var (
	requestsDesc    = prometheus.NewDesc("tidings_http_requests_in_flight", "Requests in flight that are not watches.", nil, nil)
	watchesDesc     = prometheus.NewDesc("tidings_http_watches", "Open watches.", nil, nil)
	connectionsDesc = prometheus.NewDesc("tidings_http_connections", "Open connections.", nil, nil)
	callersDesc     = prometheus.NewDesc("tidings_http_callers", "Callers with an open request or watch.", nil, nil)
	unverifiedDesc  = prometheus.NewDesc("tidings_http_unverified_requests", "Requests with unverified credentials: those in review at a cluster (asked), and those waiting for a review.", []string{"state"}, nil)
	tooSlowDesc     = prometheus.NewDesc("tidings_kubernetes_watches_too_slow_total", "Watches of the Kubernetes API that ended because they were read too slowly.", nil, nil)
	limitedDesc     = prometheus.NewDesc("tidings_http_limited_total", "Requests answered 429: of requests or watches, by the limit for all or for one caller, or with unverified credentials.", []string{"of", "for"}, nil)
)

// Describe implements [prometheus.Collector].
func (c limitsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsDesc, watchesDesc, connectionsDesc, callersDesc, unverifiedDesc, tooSlowDesc, limitedDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c limitsCollector) Collect(ch chan<- prometheus.Metric) {
	all, callers, refused, refusedCaller := c.server.limits.counts()
	gauge := func(d *prometheus.Desc, n int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	gauge(requestsDesc, all[short])
	gauge(watchesDesc, all[longRunning])
	gauge(connectionsDesc, int(c.server.connections.Load()))
	gauge(callersDesc, callers)
	active, waiting, refusedUnverified := c.server.unverified.counts()
	ch <- prometheus.MustNewConstMetric(unverifiedDesc, prometheus.GaugeValue, float64(active), "asked")
	ch <- prometheus.MustNewConstMetric(unverifiedDesc, prometheus.GaugeValue, float64(waiting), "waiting")
	ch <- prometheus.MustNewConstMetric(limitedDesc, prometheus.CounterValue, float64(refusedUnverified), "unverified", "all")
	ch <- prometheus.MustNewConstMetric(tooSlowDesc, prometheus.CounterValue, float64(c.server.kube.TooSlowWatches()))
	for _, c := range []class{short, longRunning} {
		ch <- prometheus.MustNewConstMetric(limitedDesc, prometheus.CounterValue, float64(refused[c]), c.String(), "all")
		ch <- prometheus.MustNewConstMetric(limitedDesc, prometheus.CounterValue, float64(refusedCaller[c]), c.String(), "caller")
	}
}

// statuses returns the status of all informers. A resource that was requested by name
// and does not exist has none.
func statuses(m *mirror.Mirror) func() []informer.Status {
	return func() (all []informer.Status) {
		for _, cl := range m.Status().Clusters {
			for _, r := range cl.Resources {
				if r.Resource.Resource != "" {
					all = append(all, r.Status)
				}
			}
		}
		return all
	}
}

// clustersCollector collects the state of each cluster.
type clustersCollector struct{ mirror *mirror.Mirror }

var (
	clusterUp        = prometheus.NewDesc("tidings_cluster_up", "1 if the API server answers, 0 if the lists and watches of all mirrored resources fail; absent while none has begun.", []string{"cluster"}, nil)
	clusterResources = prometheus.NewDesc("tidings_cluster_resources", "Resources of a cluster that are mirrored or will be.", []string{"cluster"}, nil)
)

// Describe implements [prometheus.Collector].
func (c clustersCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- clusterUp
	ch <- clusterResources
}

// Collect implements [prometheus.Collector].
func (c clustersCollector) Collect(ch chan<- prometheus.Metric) {
	for _, cl := range c.mirror.Status().Clusters {
		ch <- prometheus.MustNewConstMetric(clusterResources, prometheus.GaugeValue, float64(len(cl.Resources)), cl.Name)
		if up, known := cl.Up(); known {
			ch <- prometheus.MustNewConstMetric(clusterUp, prometheus.GaugeValue, map[bool]float64{true: 1}[up], cl.Name)
		}
	}
}
