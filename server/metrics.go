package server

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
		out.requests, out.latency, open, informers{m},
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

// informers reads the state of every informer when it is asked.
type informers struct{ mirror *mirror.Mirror }

// measure is one metric of an informer.
type measure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(mirror.ResourceStatus) (float64, bool)
}

func number(f func(mirror.ResourceStatus) float64) func(mirror.ResourceStatus) (float64, bool) {
	return func(r mirror.ResourceStatus) (float64, bool) { return f(r), true }
}

func newMeasure(name, help string, kind prometheus.ValueType, value func(mirror.ResourceStatus) (float64, bool)) measure {
	return measure{prometheus.NewDesc("tidings_"+name, help, []string{"cluster", "group", "version", "resource", "namespace"}, nil), kind, value}
}

var measures = []measure{
	newMeasure("objects", "Objects mirrored.", prometheus.GaugeValue, number(func(r mirror.ResourceStatus) float64 { return float64(r.Objects) })),
	newMeasure("bytes", "Bytes of the objects mirrored.", prometheus.GaugeValue, number(func(r mirror.ResourceStatus) float64 { return float64(r.Bytes) })),
	newMeasure("synced", "1 once the first list is complete.", prometheus.GaugeValue, number(func(r mirror.ResourceStatus) float64 {
		if r.Synced {
			return 1
		}
		return 0
	})),
	newMeasure("events_total", "Changes told.", prometheus.CounterValue, number(func(r mirror.ResourceStatus) float64 { return float64(r.Events) })),
	newMeasure("relists_total", "Complete lists after the first.", prometheus.CounterValue, number(func(r mirror.ResourceStatus) float64 { return float64(max(r.Lists, 1) - 1) })),
	newMeasure("watches_total", "Watches begun on the API server.", prometheus.CounterValue, number(func(r mirror.ResourceStatus) float64 { return float64(r.Watches) })),
	newMeasure("errors_total", "Requests to the API server that failed.", prometheus.CounterValue, number(func(r mirror.ResourceStatus) float64 { return float64(r.Errors) })),
	newMeasure("lag_events", "Changes that the slowest reader has not come to.", prometheus.GaugeValue, number(func(r mirror.ResourceStatus) float64 { return float64(r.Lag) })),
	newMeasure("last_contact_seconds", "Time since the API server was last heard of.", prometheus.GaugeValue, func(r mirror.ResourceStatus) (float64, bool) {
		return time.Since(r.LastContact).Seconds(), !r.LastContact.IsZero()
	}),
	newMeasure("last_error_timestamp_seconds", "When a request to the API server last failed.", prometheus.GaugeValue, func(r mirror.ResourceStatus) (float64, bool) {
		return float64(r.LastErrorTime.UnixNano()) / 1e9, !r.LastErrorTime.IsZero()
	}),
}

var clusterReady = prometheus.NewDesc("tidings_cluster_resources", "Resources of a cluster that are mirrored or about to be.", []string{"cluster"}, nil)

// Describe implements [prometheus.Collector].
func (c informers) Describe(ch chan<- *prometheus.Desc) {
	ch <- clusterReady
	for _, m := range measures {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c informers) Collect(ch chan<- prometheus.Metric) {
	for _, cl := range c.mirror.Status().Clusters {
		ch <- prometheus.MustNewConstMetric(clusterReady, prometheus.GaugeValue, float64(len(cl.Resources)), cl.Name)
		for _, r := range cl.Resources {
			if r.Resource.Resource == "" { // asked for by a name that means nothing there
				continue
			}
			for _, m := range measures {
				if v, ok := m.value(r); ok {
					ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, cl.Name, r.Resource.Group, r.Resource.Version, r.Resource.Resource, r.Namespace)
				}
			}
		}
	}
}
