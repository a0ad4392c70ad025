package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	informermetrics "github.com/tidings-io/tidings/informer/metrics"
)

// metrics is the content of /metrics.
type metrics struct {
	handler  http.Handler
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
}

func newMetrics(s *Server) (*metrics, error) {
	registry := prometheus.NewRegistry()
	out := &metrics{
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidings_http_requests_total", Help: "Requests answered; code 599 means that the response was cut off.",
		}, []string{"route", "method", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidings_http_request_duration_seconds", Help: "Time to answer requests that are not watches.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
	}
	for _, c := range []prometheus.Collector{
		out.requests, out.latency, limitsCollector{s}, s.memory, s.budget, clustersCollector{s.mirror}, informermetrics.NewCollector(statuses(s.mirror)),
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
	if s.opts.Audit != nil {
		return out, registry.Register(s.opts.Audit)
	}
	return out, nil
}

// request counts one request. A client may invent methods, so they are not used as
// labels unchecked.
func (m *metrics) request(route, method string, code int, took time.Duration, watch bool) {
	if method != http.MethodGet && method != http.MethodHead {
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(code)).Inc()
	if !watch {
		m.latency.WithLabelValues(route).Observe(took.Seconds())
	}
}

// limitsCollector collects the state of limits when it is scraped.
type limitsCollector struct{ server *Server }

var (
	requestsDesc    = prometheus.NewDesc("tidings_http_requests_in_flight", "Requests in flight that are not watches.", nil, nil)
	watchesDesc     = prometheus.NewDesc("tidings_http_watches", "Open watches.", nil, nil)
	connectionsDesc = prometheus.NewDesc("tidings_http_connections", "Open connections.", nil, nil)
	callersDesc     = prometheus.NewDesc("tidings_http_callers", "Callers with an open request or watch.", nil, nil)
	unverifiedDesc  = prometheus.NewDesc("tidings_http_strangers", "Requests with unverified credentials: those in review at a cluster (asked), and those waiting for a review.", []string{"state"}, nil)
	tooSlowDesc     = prometheus.NewDesc("tidings_kubernetes_watches_too_slow_total", "Watches of the Kubernetes API that ended because they were read too slowly.", nil, nil)
	limitedDesc     = prometheus.NewDesc("tidings_http_limited_total", "Requests answered 429: of requests or watches, by the limit for all or for one caller, or with unverified credentials (strangers).", []string{"of", "for"}, nil)
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
	ch <- prometheus.MustNewConstMetric(limitedDesc, prometheus.CounterValue, float64(refusedUnverified), "strangers", "all")
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

// clustersCollector counts the resources of each cluster.
type clustersCollector struct{ mirror *mirror.Mirror }

var clusterResources = prometheus.NewDesc("tidings_cluster_resources", "Resources of a cluster that are mirrored or will be.", []string{"cluster"}, nil)

// Describe implements [prometheus.Collector].
func (c clustersCollector) Describe(ch chan<- *prometheus.Desc) { ch <- clusterResources }

// Collect implements [prometheus.Collector].
func (c clustersCollector) Collect(ch chan<- prometheus.Metric) {
	for _, cl := range c.mirror.Status().Clusters {
		ch <- prometheus.MustNewConstMetric(clusterResources, prometheus.GaugeValue, float64(len(cl.Resources)), cl.Name)
	}
}
