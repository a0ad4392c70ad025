package history

import (
	"cmp"
	"time"
)

// Recorded is a cluster that a store has a history of.
type Recorded struct {
	Name string
	// Namesake, if not empty, is the name that a newer cluster has taken. Name is that with
	// the older cluster's uid.
	Namesake string
	// Begin and End are the times between which it was recorded.
	Begin, End time.Time
}

// Clusters lists the clusters of a store, by name.
func (s *Store) Clusters() []Recorded {
	var out []Recorded
	for _, r := range s.All() {
		begin := r.Begin()
		end, _ := r.Seen()
		if n := len(out); n == 0 || out[n-1].Name != r.Of.Cluster {
			out = append(out, Recorded{Name: r.Of.Cluster, Namesake: s.namesakes[r.Of.Cluster]})
		}
		c := &out[len(out)-1]
		if !begin.IsZero() && (c.Begin.IsZero() || begin.Before(c.Begin)) {
			c.Begin = begin
		}
		if end.After(c.End) {
			c.End = end
		}
	}
	return out
}

// nameApart gives each cluster a name of its own, as in "prod@6c2f1a…".
func (s *Store) nameApart() {
	newest := map[string]*Series{}
	all := s.All()
	for _, r := range all {
		if known := newest[r.Of.Cluster]; known == nil || newer(r, known) {
			newest[r.Of.Cluster] = r
		}
	}
	s.namesakes = map[string]string{}
	for _, r := range all {
		name := r.Of.Cluster
		if r.Of.ClusterUID != newest[name].Of.ClusterUID {
			r.Of.Cluster = name + "@" + cmp.Or(r.Of.ClusterUID, "unknown")
			s.namesakes[r.Of.Cluster] = name
		}
	}
}

// newer reports whether a series was written after another one. The progress is recorded from
// time to time only, so if the times are close to each other, the series that began later is the newer.
func newer(r, other *Series) bool {
	apart := r.seen.Time.Sub(other.seen.Time)
	return apart > seenPeriod || r.id > other.id && (apart > -seenPeriod || r.seen.Time.IsZero())
}
