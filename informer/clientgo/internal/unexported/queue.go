package unexported

import (
	"reflect"

	"k8s.io/client-go/tools/cache"
)

// QueueMetrics returns the metrics that a queue of client-go's with this
// identity reports to. A nil provider means the one set by
// cache.SetInformerMetricsProvider, which has no getter: it is read from a
// queue. The metrics are nil if none are to be reported, or if this version of
// client-go keeps them elsewhere.
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
	r := fieldReader{of: metrics.Elem()}
	queued = field[cache.GaugeMetric](&r, "numberOfQueuedItem")
	latency = field[cache.HistogramMetric](&r, "processingLatency")
	if r.err != nil {
		return nil, nil
	}
	return queued, latency
}
