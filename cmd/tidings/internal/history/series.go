package history

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Resource identifies what a series is the history of.
type Resource struct {
	// Cluster is the name of the cluster, ClusterUID the uid of its namespace
	// kube-system. It is empty if the mirror may not read that.
	Cluster    string `json:"cluster"`
	ClusterUID string `json:"clusterUID,omitempty"`
	Group      string `json:"group,omitempty"`
	Version    string `json:"version"`
	Resource   string `json:"resource"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced,omitempty"`
	// Namespace is the only one that the mirror may read. Empty means all.
	Namespace string `json:"namespace,omitempty"`
}

func (r Resource) String() string {
	name := r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	if r.Namespace != "" {
		name += " in namespace " + r.Namespace
	}
	return name + " of cluster " + r.Cluster
}

func (r Resource) compare(o Resource, id, other uint32) int {
	return cmp.Or(cmp.Compare(r.Cluster, o.Cluster), cmp.Compare(r.Group, o.Group), cmp.Compare(r.Resource, o.Resource), cmp.Compare(r.Namespace, o.Namespace), cmp.Compare(id, other))
}

// Series is the history of one resource. Its methods are safe for concurrent use.
type Series struct {
	// Of is what the series is the history of.
	Of Resource

	store *Store
	id    uint32

	mu      sync.Mutex
	windows []window // oldest first
	next    uint64   // the sequence number of the next change
	seen    progress
	gaps    []Gap // oldest first
	writing bool
	full    bool // the current window is to end, because the store is full
	stats   Stats
}

// Stats count what a series has recorded since the store was opened.
type Stats struct {
	Writing  bool
	Versions uint64
	Bytes    uint64 // of JSON, before compression
	Gaps     uint64
	// Failing is the error that keeps the series from being written, nil if none.
	Failing error
}

// window is a part of a series.
type window struct {
	// First is the sequence number of the first change, and the name of the window.
	First uint64 `json:"-"`
	// Begun is when the window began.
	Begun time.Time `json:"begun"`
	// Epoch counts the times that the cluster's resourceVersions have gone back.
	Epoch uint64 `json:"epoch,omitempty"`
	// ResourceVersion of the series when the window began.
	ResourceVersion uint64 `json:"resourceVersion,omitempty"`
	// Complete says that the checkpoint has been written.
	Complete bool `json:"complete,omitempty"`
}

// progress is how far a series has been seen. There may be no change at the end.
type progress struct {
	Next            uint64    `json:"next"` // the sequence number of the next change
	Time            time.Time `json:"time"`
	ResourceVersion uint64    `json:"resourceVersion"`
	// Open says that the writer has not been closed.
	Open bool `json:"open,omitempty"`
	// Listing says that only a part of a list has been written, and Since is the first
	// change of that list.
	Listing bool   `json:"listing,omitempty"`
	Since   uint64 `json:"since,omitempty"`
}

// Gap is a time in which changes may have been missed, or were recorded late. What existed
// before and after is known.
type Gap struct {
	// Seq is the first change after the gap.
	Seq uint64 `json:"-"`
	// From and To are the ends: the last moment before, and the first one after.
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	After  uint64    `json:"after,omitempty"`  // the resourceVersion at From
	Before uint64    `json:"before,omitempty"` // the resourceVersion at To
	Reason string    `json:"reason"`
	// Late says that nothing was missed: changes in the gap were recorded after it.
	Late bool `json:"late,omitempty"`
}

func (r *Series) load() error {
	err := r.store.scan(windowKey(r.id, 0)[:5], func(key, value []byte) error {
		w := window{First: binary.BigEndian.Uint64(key[5:])}
		if err := json.Unmarshal(value, &w); err != nil {
			return fmt.Errorf("window %d: %w", w.First, err)
		}
		r.windows = append(r.windows, w)
		return nil
	})
	if err != nil {
		return err
	}
	err = r.store.scan(gapKey(r.id, 0)[:5], func(key, value []byte) error {
		g := Gap{Seq: binary.BigEndian.Uint64(key[5:])}
		if err := json.Unmarshal(value, &g); err != nil {
			return fmt.Errorf("gap %d: %w", g.Seq, err)
		}
		r.gaps = append(r.gaps, g)
		return nil
	})
	if err != nil {
		return err
	}
	value, err := r.store.get(progressKey(r.id))
	if err != nil {
		return err
	}
	if value != nil {
		if err := json.Unmarshal(value, &r.seen); err != nil {
			return fmt.Errorf("progress: %w", err)
		}
	}
	r.next = max(r.seen.Next, 1)
	return nil
}

// Begin returns the time at which the history begins, the zero time if it is empty.
func (r *Series) Begin() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return begin(r.windows)
}

// begin returns the earliest time of windows. It need not be that of the first: a clock
// that was ahead may have been set.
func begin(windows []window) (at time.Time) {
	for _, w := range windows {
		if at.IsZero() || w.Begun.Before(at) {
			at = w.Begun
		}
	}
	return at
}

// Seen returns the time and the resourceVersion up to which the history is known.
func (r *Series) Seen() (time.Time, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.Time, r.seen.ResourceVersion
}

// end is [Series.Seen] of a series that nothing writes and that has a change, else zero.
func (r *Series) end() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writing || len(r.windows) == 0 {
		return time.Time{}
	}
	return r.seen.Time
}

// Gaps lists the gaps that end after since and begin before until, oldest first.
func (r *Series) Gaps(since, until time.Time) []Gap {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Gap
	for _, g := range r.gaps {
		from := g.From
		if g.To.Before(from) { // the clock went back
			from = g.To
		}
		if g.To.After(since) && from.Before(until) {
			found = append(found, g)
		}
	}
	return found
}

// Stats returns counts.
func (r *Series) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Writing = r.writing
	return s
}

// pinned is a consistent view of a series.
type pinned struct {
	windows []window
	next    uint64
	seen    progress
	writing bool
	snap    *pebble.Snapshot
}

// pin returns a view of what has been written. Its snapshot must be closed. The lock makes
// it consistent: a window is complete, and is listed no more, in memory after the one and
// before the other is so on disk.
func (r *Series) pin() pinned {
	r.mu.Lock()
	defer r.mu.Unlock()
	return pinned{r.windows, r.next, r.seen, r.writing, r.store.db.NewSnapshot()}
}

// gapOf returns the gap in which a version lies, which windows[i] would have.
func (r *Series) gapOf(p pinned, i int, version uint64) *Gap {
	epoch := i // the first window in which the cluster's versions are those of windows[i]
	for epoch > 0 && p.windows[epoch-1].Epoch == p.windows[i].Epoch {
		epoch--
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range slices.Backward(r.gaps) {
		if g.Seq >= p.windows[epoch].First && g.After < version && version < g.Before {
			return &g
		}
	}
	return nil
}

// end is the sequence number after the last change of a window.
func (p pinned) end(i int) uint64 {
	if i+1 < len(p.windows) {
		return p.windows[i+1].First
	}
	return p.next
}

// chain returns the windows that together have all objects that exist in windows[i].
func (p pinned) chain(i int) []window {
	from := i
	for from > 0 && !p.windows[from].Complete {
		from--
	}
	return p.windows[from : i+1]
}
