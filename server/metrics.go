package server

import (
	"net/http"
	"strconv"
	"sync/atomic"
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

func newMetrics(m *mirror.Mirror, watches *atomic.Int64) (*metrics, error) {
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
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidings_http_watches", Help: "Watches open."}, func() float64 { return float64(watches.Load()) })
	for _, c := range []prometheus.Collector{
		out.requests, out.latency, open, clusters{m}, informermetrics.NewCollector(statuses(m)),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
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
