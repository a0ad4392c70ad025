package livetable

import "github.com/prometheus/client_golang/prometheus"

var (
	tablesDesc  = prometheus.NewDesc("tidings_live_tables", "Live tables that are kept for windows, of the past too.", nil, nil)
	windowsDesc = prometheus.NewDesc("tidings_live_table_windows", "Windows of live tables that are open.", nil, nil)
	bytesDesc   = prometheus.NewDesc("tidings_live_table_bytes", "Memory of the live tables, about.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (t *Tables) Describe(out chan<- *prometheus.Desc) {
	out <- tablesDesc
	out <- windowsDesc
	out <- bytesDesc
}

// Collect implements [prometheus.Collector].
func (t *Tables) Collect(out chan<- prometheus.Metric) {
	t.mu.Lock()
	tables, windows, bytes := len(t.open), 0, t.total
	for _, n := range t.windows {
		windows += n
	}
	t.mu.Unlock()
	out <- prometheus.MustNewConstMetric(tablesDesc, prometheus.GaugeValue, float64(tables))
	out <- prometheus.MustNewConstMetric(windowsDesc, prometheus.GaugeValue, float64(windows))
	out <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(bytes))
}
