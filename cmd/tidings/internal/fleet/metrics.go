package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"cluster"}, nil)
}

var (
	publishingDesc = describe("tidings_publish_active", "1 if this mirror publishes the cluster, 0 if another does or it cannot. The label cluster is the name that it is published under.")
	messagesDesc   = describe("tidings_publish_messages_total", "Messages added to the log of the cluster.")
	bytesDesc      = describe("tidings_publish_bytes_total", "Bytes of those messages, with headers.")
	changesDesc    = describe("tidings_publish_changes_total", "Changes of objects in those messages.")
	unfitDesc      = describe("tidings_publish_unpublished_resources", "Resources that cannot be published, because their resourceVersions are not decimal numbers.")
	snapshotsDesc  = describe("tidings_publish_snapshots_total", "Snapshots made.")

	behindDesc  = describe("tidings_follow_behind_seconds", "How far the mirror is behind the cluster's publisher: the delay of the newest message, or the time since it came.")
	problemDesc = describe("tidings_follow_problem", "1 if what is read may not be what the cluster has, because of its publisher, NATS, or the way there.")
	gapsDesc    = describe("tidings_follow_gaps_total", "Times that messages were missing, came twice, or went back.")
)

// Describe implements [prometheus.Collector].
func (p *Publisher) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{publishingDesc, messagesDesc, bytesDesc, changesDesc, snapshotsDesc, unfitDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (p *Publisher) Collect(ch chan<- prometheus.Metric) {
	for _, s := range p.States() {
		active := 0.0
		if s.Holds {
			active = 1
		}
		ch <- prometheus.MustNewConstMetric(publishingDesc, prometheus.GaugeValue, active, s.As)
		ch <- prometheus.MustNewConstMetric(unfitDesc, prometheus.GaugeValue, float64(len(s.Unpublished)), s.As)
		for d, n := range map[*prometheus.Desc]uint64{messagesDesc: s.Messages, bytesDesc: s.Bytes, changesDesc: s.Changes, snapshotsDesc: s.Snapshots} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), s.As)
		}
	}
}

// Describe implements [prometheus.Collector].
func (f *Follower) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{behindDesc, problemDesc, gapsDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (f *Follower) Collect(ch chan<- prometheus.Metric) {
	for _, s := range f.States() {
		problem := 0.0
		if s.Problem != "" {
			problem = 1
		}
		ch <- prometheus.MustNewConstMetric(problemDesc, prometheus.GaugeValue, problem, s.Cluster)
		ch <- prometheus.MustNewConstMetric(behindDesc, prometheus.GaugeValue, s.Behind.Seconds(), s.Cluster)
		ch <- prometheus.MustNewConstMetric(gapsDesc, prometheus.CounterValue, float64(s.Gaps), s.Cluster)
	}
}

// FollowState is the state of following one cluster.
type FollowState struct {
	Cluster string
	// Problem says why what is read may not be what the cluster has, "" if nothing is known
	// to be wrong.
	Problem string
	// Behind is how far the mirror is behind the publisher.
	Behind time.Duration
	// Gaps counts the times that messages were missing, came twice or went back.
	Gaps uint64
	// Epoch and Number are those of the last message.
	Epoch  string
	Number uint64
}

// States returns the state of each cluster, in no order.
func (f *Follower) States() (states []FollowState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, r := range f.replicas {
		s := FollowState{Cluster: name, Problem: r.log.problem()}
		l := r.log
		l.mu.Lock()
		s.Gaps, s.Epoch, s.Number = l.gaps, l.at.Epoch, l.at.Number
		if s.Behind = l.delay.last; !l.heard.IsZero() {
			s.Behind = max(s.Behind, time.Since(l.heard)-beatEvery)
		}
		l.mu.Unlock()
		states = append(states, s)
	}
	return states
}
