// Package metrics exports the status of informers to Prometheus. A collector reads
// [informer.Informer.Status] at each scrape. Informers do not depend on
// Prometheus, and a package like this one can support another metrics system.
//
//	registry.MustRegister(metrics.NewCollector(metrics.Of(pods, services)))
//
// For informers of package clientgo, see clientgo.Observe and clientgo.Registry.
package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-io/tidings/informer"
)

// Of returns a function that reads the status of informers.
func Of(informers ...interface{ Status() informer.Status }) func() []informer.Status {
	return func() []informer.Status {
		all := make([]informer.Status, len(informers))
		for i, inf := range informers {
			all[i] = inf.Status()
		}
		return all
	}
}

// OfFactory returns a function that reads the status of all informers that a
// factory has when it is called.
func OfFactory(f *informer.Factory) func() []informer.Status {
	return func() (all []informer.Status) {
		for _, inf := range f.Informers() {
			all = append(all, inf.Status())
		}
		return all
	}
}

// measure is a metric computed from a status.
type measure[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) (v float64, known bool)
	join  func(a, b float64) float64 // combines values with the same labels
}

// timestamp returns a time in seconds since 1970. The zero time is not known.
func timestamp(t time.Time) (seconds float64, known bool) {
	return float64(t.UnixNano()) / 1e9, !t.IsZero()
}

func sum(a, b float64) float64     { return a + b }
func lowest(a, b float64) float64  { return min(a, b) }
func highest(a, b float64) float64 { return max(a, b) }

// Prometheus gives targets in Kubernetes a label "namespace" of their own.
var labels = []string{"cluster", "group", "version", "resource", "resource_namespace"}

func of[S any](labels []string, name, help string, kind prometheus.ValueType, join func(a, b float64) float64, value func(S) (float64, bool)) measure[S] {
	return measure[S]{prometheus.NewDesc("tidings_informer_"+name, help, labels, nil), kind, value, join}
}

func gauge(name, help string, join func(a, b float64) float64, value func(informer.Status) (float64, bool)) measure[informer.Status] {
	return of(labels, name, help, prometheus.GaugeValue, join, value)
}

func counter(name, help string, value func(informer.Status) uint64) measure[informer.Status] {
	return of(labels, name, help, prometheus.CounterValue, sum, func(s informer.Status) (float64, bool) { return float64(value(s)), true })
}

var informers = []measure[informer.Status]{
	gauge("objects", "Objects in the store.", sum, func(s informer.Status) (float64, bool) { return float64(s.Objects), true }),
	gauge("bytes", "Bytes of the objects in the store, if it keeps them encoded.", sum, func(s informer.Status) (float64, bool) {
		return float64(s.Bytes), s.Bytes > 0 || s.Objects == 0
	}),
	gauge("synced", "1 once the first list is complete.", lowest, func(s informer.Status) (float64, bool) {
		if s.Synced {
			return 1, true
		}
		return 0, true
	}),
	counter("events_total", "Changes of the store.", func(s informer.Status) uint64 { return s.Events }),
	counter("relists_total", "Complete lists after the first.", func(s informer.Status) uint64 { return max(s.Lists, 1) - 1 }),
	counter("watches_total", "Watches begun on the API server.", func(s informer.Status) uint64 { return s.Watches }),
	counter("errors_total", "Requests to the API server that failed.", func(s informer.Status) uint64 { return s.Errors }),
	counter("function_panics_total", "Panics of transform, filter and index functions.", func(s informer.Status) uint64 { return s.Panics }),
	gauge("lag_events", "Changes that the slowest handler or loop has not received yet.", highest, func(s informer.Status) (float64, bool) { return float64(s.Lag), true }),
	gauge("last_contact_timestamp_seconds", "When the API server last sent something.", lowest, func(s informer.Status) (float64, bool) { return timestamp(s.LastContact) }),
	gauge("last_error_timestamp_seconds", "When a request to the API server last failed.", highest, func(s informer.Status) (float64, bool) { return timestamp(s.LastErrorTime) }),
}

var phase = prometheus.NewDesc("tidings_informer_phase", "Informers in the phase: one, unless several have the same labels.", append(labels[:len(labels):len(labels)], "phase"), nil)

func handler(name, help string, kind prometheus.ValueType, value func(informer.HandlerStatus) uint64) measure[informer.HandlerStatus] {
	return of(append(labels[:len(labels):len(labels)], "handler"), name, help, kind, sum, func(s informer.HandlerStatus) (float64, bool) { return float64(value(s)), true })
}

// Handlers are identified by name. Those without a name appear only in the lag of
// their informer.
var handlers = []measure[informer.HandlerStatus]{
	handler("handler_events_total", "Events delivered to the handler.", prometheus.CounterValue, func(s informer.HandlerStatus) uint64 { return s.Delivered }),
	handler("handler_backlog_events", "Events that wait for the handler.", prometheus.GaugeValue, func(s informer.HandlerStatus) uint64 { return s.Backlog }),
	of(append(labels[:len(labels):len(labels)], "handler"), "handler_backlog_age_seconds", "Age of the oldest event that waits for the handler, 0 if none waits.", prometheus.GaugeValue, highest, func(s informer.HandlerStatus) (float64, bool) {
		if s.BacklogSince.IsZero() {
			return 0, true
		}
		return time.Since(s.BacklogSince).Seconds(), true
	}),
	handler("handler_folded_total", "Events folded into others because the handler was slow.", prometheus.CounterValue, func(s informer.HandlerStatus) uint64 { return s.Folded }),
	handler("handler_panics_total", "Events at which the handler panicked.", prometheus.CounterValue, func(s informer.HandlerStatus) uint64 { return s.Panics }),
}

// collector implements [prometheus.Collector].
type collector struct{ statuses func() []informer.Status }

// NewCollector returns a collector that calls statuses at each scrape. It combines
// informers of the same cluster, resource and namespace, and handlers of the same
// name: it adds counts and sizes, and takes the worst of the other values.
func NewCollector(statuses func() []informer.Status) prometheus.Collector {
	return collector{statuses}
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- phase
	for _, m := range informers {
		ch <- m.desc
	}
	for _, m := range handlers {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	t := table{}
	for _, s := range c.statuses() {
		values := []string{s.Cluster, s.Resource.Group, s.Resource.Version, s.Resource.Resource, s.Namespace}
		t.add(phase, prometheus.GaugeValue, 1, sum, append(values[:len(values):len(values)], string(s.Phase)))
		for _, m := range informers {
			if v, known := m.value(s); known {
				t.add(m.desc, m.kind, v, m.join, values)
			}
		}
		for _, h := range s.Handlers {
			if h.Name == "" {
				continue
			}
			named := append(values[:len(values):len(values)], h.Name)
			for _, m := range handlers {
				v, _ := m.value(h)
				t.add(m.desc, m.kind, v, m.join, named)
			}
		}
	}
	for _, r := range t {
		ch <- prometheus.MustNewConstMetric(r.desc, r.kind, r.value, r.labels...)
	}
}

// table holds the values by metric and labels.
type table map[rowKey]row

type rowKey struct {
	desc   *prometheus.Desc
	labels string
}

type row struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels []string
}

func (t table) add(desc *prometheus.Desc, kind prometheus.ValueType, value float64, join func(a, b float64) float64, labels []string) {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "\uFFFD") // otherwise the whole scrape fails
	}
	key := rowKey{desc, strings.Join(labels, "\xff")}
	if have, ok := t[key]; ok {
		value = join(have.value, value)
	}
	t[key] = row{desc, kind, value, labels}
}
