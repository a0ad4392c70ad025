package audit

import "github.com/prometheus/client_golang/prometheus"

var (
	eventsDesc  = prometheus.NewDesc("tidings_audit_events_total", "Events written to the audit log.", nil, nil)
	lostDesc    = prometheus.NewDesc("tidings_audit_lost_total", "Events that are missing in the audit log: the queue was full (queue), or they could not be written (write).", []string{"because"}, nil)
	foldedDesc  = prometheus.NewDesc("tidings_audit_folded_total", "Refused requests without accepted credentials of which the audit log has only the number.", nil, nil)
	queueDesc   = prometheus.NewDesc("tidings_audit_queue_bytes", "Bytes of the audit log that wait to be written.", nil, nil)
	failingDesc = prometheus.NewDesc("tidings_audit_failing", "1 if the last write of the audit log failed.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (l *Log) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{eventsDesc, lostDesc, foldedDesc, queueDesc, failingDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	s := l.Status()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	counter(eventsDesc, s.Written)
	counter(lostDesc, s.Dropped, "queue")
	counter(lostDesc, s.Failed, "write")
	counter(foldedDesc, s.Folded)
	failing := 0.0
	if s.Err != nil {
		failing = 1
	}
	ch <- prometheus.MustNewConstMetric(queueDesc, prometheus.GaugeValue, float64(s.Queued))
	ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, failing)
}
