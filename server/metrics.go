package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidings-io/tidings/informer"
	informermetrics "github.com/tidings-io/tidings/informer/metrics"
	"github.com/tidings-io/tidings/mirror"
)

// metrics is what /metrics shows.
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
			Name: "tidings_http_requests_total", Help: "Requests answered; code 599 stands for answers that broke off.",
		}, []string{"route", "method", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidings_http_request_duration_seconds", Help: "Time to answer requests that are not watches.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
	}
	for _, c := range []prometheus.Collector{
		out.requests, out.latency, underWay{s}, s.memory, s.budget, clusters{s.mirror}, informermetrics.NewCollector(statuses(s.mirror)),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	if s.opts.Gate != nil {
		return out, registry.Register(s.opts.Gate)
	}
	return out, nil
}

// request counts one request. Methods are the client's to invent, labels are
// not.
func (m *metrics) request(route, method string, code int, took time.Duration, watch bool) {
	if method != http.MethodGet && method != http.MethodHead {
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(code)).Inc()
	if !watch {
		m.latency.WithLabelValues(route).Observe(took.Seconds())
	}
}

// underWay reads what is limited, and what came of that, when it is asked.
type underWay struct{ server *Server }

var (
	requestsDesc    = prometheus.NewDesc("tidings_http_requests_in_flight", "Requests under way that are not watches.", nil, nil)
	watchesDesc     = prometheus.NewDesc("tidings_http_watches", "Watches open.", nil, nil)
	connectionsDesc = prometheus.NewDesc("tidings_http_connections", "Connections open.", nil, nil)
	callersDesc     = prometheus.NewDesc("tidings_http_callers", "Callers that have a request or a watch open.", nil, nil)
	strangersDesc   = prometheus.NewDesc("tidings_http_strangers", "Requests with credentials that are not known: those about which a cluster is asked, and those that wait for that.", []string{"state"}, nil)
	tooSlowDesc     = prometheus.NewDesc("tidings_kubernetes_watches_too_slow_total", "Watches of the Kubernetes API that have ended because they were read too slowly.", nil, nil)
	limitedDesc     = prometheus.NewDesc("tidings_http_limited_total", "Requests answered 429: of requests or watches, because of the limit for all or for one caller, or of strangers.", []string{"of", "for"}, nil)
)

// Describe implements [prometheus.Collector].
func (u underWay) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsDesc, watchesDesc, connectionsDesc, callersDesc, strangersDesc, tooSlowDesc, limitedDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (u underWay) Collect(ch chan<- prometheus.Metric) {
	all, callers, refused, refusedH := u.server.limits.counts()
	gauge := func(d *prometheus.Desc, n int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	gauge(requestsDesc, all[brief])
	gauge(watchesDesc, all[open])
	gauge(connectionsDesc, int(u.server.connections.Load()))
	gauge(callersDesc, callers)
	inside, waiting, strangers := u.server.strangers.counts()
	ch <- prometheus.MustNewConstMetric(strangersDesc, prometheus.GaugeValue, float64(inside), "asked")
	ch <- prometheus.MustNewConstMetric(strangersDesc, prometheus.GaugeValue, float64(waiting), "waiting")
	ch <- prometheus.MustNewConstMetric(limitedDesc, prometheus.CounterValue, float64(strangers), "strangers", "all")
	ch <- prometheus.MustNewConstMetric(tooSlowDesc, prometheus.CounterValue, float64(u.server.kube.TooSlowWatches()))
	for _, c := range []class{brief, open} {
		ch <- prometheus.MustNewConstMetric(limitedDesc, prometheus.CounterValue, float64(refused[c]), c.String(), "all")
		ch <- prometheus.MustNewConstMetric(limitedDesc, prometheus.CounterValue, float64(refusedH[c]), c.String(), "caller")
	}
}

// statuses are those of all informers. What was asked for by a name that means
// nothing in a cluster has none.
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

// clusters counts the resources of each cluster.
type clusters struct{ mirror *mirror.Mirror }

var clusterResources = prometheus.NewDesc("tidings_cluster_resources", "Resources of a cluster that are mirrored or about to be.", []string{"cluster"}, nil)

// Describe implements [prometheus.Collector].
func (c clusters) Describe(ch chan<- *prometheus.Desc) { ch <- clusterResources }

// Collect implements [prometheus.Collector].
func (c clusters) Collect(ch chan<- prometheus.Metric) {
	for _, cl := range c.mirror.Status().Clusters {
		ch <- prometheus.MustNewConstMetric(clusterResources, prometheus.GaugeValue, float64(len(cl.Resources)), cl.Name)
	}
}
