package clientgo

import (
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo/internal/adopt"
)

// metrics are what client-go's queue reports of itself (informer_metrics.go):
// how much waits and how long taking it in takes.
type metrics struct {
	id      cache.InformerNameAndResource
	queued  cache.GaugeMetric // nil: nobody looks
	latency cache.HistogramMetric
}

func newMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) metrics {
	m := metrics{id: id}
	m.queued, m.latency = adopt.QueueMetrics(id, provider)
	return m
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
