package clientgo

import (
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo/internal/unexported"
)

// metrics are those that client-go's queue reports (informer_metrics.go): the
// number of queued deltas and the time to process them.
type metrics struct {
	id      cache.InformerNameAndResource
	queued  cache.GaugeMetric // nil if not reported
	latency cache.HistogramMetric
}

func newMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) metrics {
	m := metrics{id: id}
	m.queued, m.latency = unexported.QueueMetrics(id, provider)
	return m
}

// batch records that processing of n deltas begins. The function it returns
// records the end.
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

// storeMetrics returns the options of a store that reports metrics, or none
// without an identity to report them under.
func storeMetrics(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) []cache.StoreOption {
	if !id.Reserved() {
		return nil
	}
	return []cache.StoreOption{cache.WithStoreMetrics(id, provider)}
}
