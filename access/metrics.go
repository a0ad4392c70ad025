package access

import "github.com/prometheus/client_golang/prometheus"

var (
	questions = prometheus.NewDesc("tidings_access_questions_total",
		"Questions about callers: asked of the cluster, answered from memory, failed to be answered, or answered by the last yes (grace) because the cluster could not be asked.", []string{"cluster", "about", "outcome"}, nil)
	lost = prometheus.NewDesc("tidings_access_lost_total", "Open requests that were ended because their caller had lost the right.", []string{"cluster"}, nil)
)

// Describe implements [prometheus.Collector].
func (g *Gate) Describe(ch chan<- *prometheus.Desc) {
	ch <- questions
	ch <- lost
}

// Collect implements [prometheus.Collector].
func (g *Gate) Collect(ch chan<- prometheus.Metric) {
	type question struct{ cluster, about, outcome string }
	counts, ended := map[question]uint64{}, map[string]uint64{}
	g.mu.Lock()
	for _, r := range g.reviewers { // there may be two of a name for a moment
		ended[r.name] += r.lost.Load()
		caches := map[string]interface {
			counts() (asked, remembered, failed, graced uint64)
		}{"token": r.tokens, "certificate": r.certificates, "right": r.rights}
		if r.authorities != g.authorities {
			caches["authorities"] = r.authorities.cache
		}
		for about, c := range caches {
			asked, remembered, failed, graced := c.counts()
			counts[question{r.name, about, "asked"}] += asked
			counts[question{r.name, about, "remembered"}] += remembered
			counts[question{r.name, about, "failed"}] += failed
			counts[question{r.name, about, "grace"}] += graced
		}
	}
	g.mu.Unlock()
	for q, n := range counts {
		ch <- prometheus.MustNewConstMetric(questions, prometheus.CounterValue, float64(n), q.cluster, q.about, q.outcome)
	}
	for name, n := range ended {
		ch <- prometheus.MustNewConstMetric(lost, prometheus.CounterValue, float64(n), name)
	}
}

func (c *cache[V]) counts() (asked, remembered, failed, graced uint64) {
	return c.asked.Load(), c.remembered.Load(), c.failed.Load(), c.graced.Load()
}
