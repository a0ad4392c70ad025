package history

import "github.com/prometheus/client_golang/prometheus"

var (
	versionsDesc = prometheus.NewDesc("tidings_history_versions_total", "Versions of objects that were written to the history.", []string{"cluster", "group", "resource"}, nil)
	bytesDesc    = prometheus.NewDesc("tidings_history_version_bytes_total", "Bytes of those versions as JSON, before compression.", []string{"cluster", "group", "resource"}, nil)
	gapsDesc     = prometheus.NewDesc("tidings_history_gaps_total", "Times in which changes may have been missed, since the start.", []string{"cluster", "group", "resource"}, nil)
	failingDesc  = prometheus.NewDesc("tidings_history_failing", "1 if the last write of the history of a resource failed.", []string{"cluster", "group", "resource"}, nil)
	seenDesc     = prometheus.NewDesc("tidings_history_seen_timestamp_seconds", "When the history of a resource was last known to be complete.", []string{"cluster", "group", "resource"}, nil)
	diskDesc     = prometheus.NewDesc("tidings_history_disk_bytes", "Disk space that the history takes.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (rec *Recording) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{versionsDesc, bytesDesc, gapsDesc, failingDesc, seenDesc, diskDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. Only the series that are being written
// have metrics.
func (rec *Recording) Collect(ch chan<- prometheus.Metric) {
	type labels struct{ cluster, group, resource string }
	sums := map[labels]*Stats{}
	seen := map[labels]float64{}
	for _, r := range rec.store.All() {
		s := r.Stats()
		if !s.Writing {
			continue
		}
		of := labels{r.Of.Cluster, r.Of.Group, r.Of.Resource} // a resource may be recorded in several namespaces
		at, _ := r.Seen()
		sum := sums[of]
		if sum == nil {
			sum = &Stats{}
			sums[of], seen[of] = sum, float64(at.Unix())
		}
		sum.Versions, sum.Bytes, sum.Gaps = sum.Versions+s.Versions, sum.Bytes+s.Bytes, sum.Gaps+s.Gaps
		if seen[of] = min(seen[of], float64(at.Unix())); s.Failing != nil {
			sum.Failing = s.Failing
		}
	}
	for of, s := range sums {
		counter := func(d *prometheus.Desc, n uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), of.cluster, of.group, of.resource)
		}
		counter(versionsDesc, s.Versions)
		counter(bytesDesc, s.Bytes)
		counter(gapsDesc, s.Gaps)
		failing := 0.0
		if s.Failing != nil {
			failing = 1
		}
		ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, failing, of.cluster, of.group, of.resource)
		ch <- prometheus.MustNewConstMetric(seenDesc, prometheus.GaugeValue, seen[of], of.cluster, of.group, of.resource)
	}
	ch <- prometheus.MustNewConstMetric(diskDesc, prometheus.GaugeValue, float64(rec.store.DiskUsage()))
}
