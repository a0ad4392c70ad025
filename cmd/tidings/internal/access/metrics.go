package access

import "github.com/prometheus/client_golang/prometheus"

var (
	reviewsDesc = prometheus.NewDesc("tidings_access_reviews_total",
		"Reviews of callers: sent to the cluster (asked), answered from the cache (remembered), failed, or answered by the last positive result because the cluster was unavailable (grace).", []string{"cluster", "about", "outcome"}, nil)
	lostDesc = prometheus.NewDesc("tidings_access_lost_total", "Open requests that ended because their caller lost the right.", []string{"cluster"}, nil)
)

// Describe implements [prometheus.Collector].
func (g *Gate) Describe(ch chan<- *prometheus.Desc) {
	ch <- reviewsDesc
	ch <- lostDesc
}

// Collect implements [prometheus.Collector].
func (g *Gate) Collect(ch chan<- prometheus.Metric) {
	type labels struct{ cluster, about, outcome string }
	counts, ended := map[labels]uint64{}, map[string]uint64{}
	g.mu.Lock()
	for _, r := range g.reviewers { // two may have the same name for a moment
		ended[r.name] += r.lost.Load()
		caches := map[string]interface {
			counts() (asked, remembered, failed, graced uint64)
		}{"token": r.tokens, "certificate": r.certificates, "right": r.rights}
		if r.authorities != g.authorities {
			caches["authorities"] = r.authorities.cache
		}
		for about, c := range caches {
			asked, remembered, failed, graced := c.counts()
			counts[labels{r.name, about, "asked"}] += asked
			counts[labels{r.name, about, "remembered"}] += remembered
			counts[labels{r.name, about, "failed"}] += failed
			counts[labels{r.name, about, "grace"}] += graced
		}
	}
	g.mu.Unlock()
	for q, n := range counts {
		ch <- prometheus.MustNewConstMetric(reviewsDesc, prometheus.CounterValue, float64(n), q.cluster, q.about, q.outcome)
	}
	for name, n := range ended {
		ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(n), name)
	}
}

func (c *cache[V]) counts() (asked, remembered, failed, graced uint64) {
	return c.sent.Load(), c.cached.Load(), c.failed.Load(), c.graced.Load()
}
