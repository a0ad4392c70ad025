package adopt

import (
	"reflect"

	"k8s.io/client-go/tools/cache"
)

// QueueMetrics are what a queue of client-go's with this identity reports to, by
// the provider or, if that is nil, by the one that cache.SetInformerMetricsProvider
// has set, which only client-go can ask. They are nil if nothing is to be
// reported, or if this version of client-go does not have them where they are
// looked for.
func QueueMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) (queued cache.GaugeMetric, latency cache.HistogramMetric) {
	if !id.Reserved() {
		return nil, nil
	}
	queue := reflect.ValueOf(cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction: cache.MetaNamespaceKeyFunc, AtomicEvents: true, Identifier: id, MetricsProvider: provider,
	}))
	metrics := queue.Elem().FieldByName("metrics")
	if metrics.Kind() != reflect.Pointer || metrics.Elem().Kind() != reflect.Struct {
		return nil, nil
	}
	r := reader{of: metrics.Elem()}
	queued = field[cache.GaugeMetric](&r, "numberOfQueuedItem")
	latency = field[cache.HistogramMetric](&r, "processingLatency")
	if r.err != nil {
		return nil, nil
	}
	return queued, latency
}
