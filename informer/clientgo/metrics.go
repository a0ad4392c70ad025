package clientgo

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// metrics are what client-go's queue reports of itself (informer_metrics.go):
// how much waits and how long taking it in takes. The provider that
// cache.SetInformerMetricsProvider sets can be asked by client-go alone; only
// the gauge of the store's version gets there, see storeMetrics.
type metrics struct {
	queued  cache.GaugeMetric
	latency cache.HistogramMetric
}

func newMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) metrics {
	if provider == nil || !id.Reserved() {
		return metrics{}
	}
	return metrics{provider.NewQueuedItemMetric(id), provider.NewProcessingLatencyMetric(id)}
}

// batch notes that n deltas are taken in; the function it returns, that they
// have been.
func (m metrics) batch(n int) func() {
	if m.queued == nil {
		return func() {}
	}
	start := time.Now()
	m.queued.Set(float64(n))
	return func() {
		m.queued.Set(0)
		m.latency.Observe(time.Since(start).Seconds())
	}
}

// storeMetrics are the options of a store that counts, none if nobody looks.
func storeMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) []cache.StoreOption {
	if !id.Reserved() {
		return nil
	}
	return []cache.StoreOption{cache.WithStoreMetrics(id, provider)}
}
