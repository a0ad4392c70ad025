package informer

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"
)

// Below this size a scan is as fast as an index and needs no memory.
const smallStore = 256

const (
	// maxLabelIndexes is the number of label keys with an index. It is bounded
	// because keys come from queries, and any caller may send queries. Other keys
	// are scanned for.
	maxLabelIndexes = 32
	// buildEvery limits how often an index is built, after an initial burst of
	// maxLabelIndexes. Building one is not free in a large store.
	buildEvery = time.Second
	// scanRate is the number of objects to scan per second to find out whether any
	// has a key that a query found nothing for.
	scanRate = 1_000_000
	// halfLife is how often the counts of queries are halved.
	halfLife = 10 * time.Second
)

// labelIndexPrefix begins the names of label indexes.
const labelIndexPrefix = "label "

// labelIndexes decides which label keys have an index: of the keys that objects
// have, those that have been queried the most lately.
type labelIndexes struct {
	indexes atomic.Pointer[[]*labelIndex] // the existing ones

	mu       sync.Mutex // held briefly, and only for queries of keys without an index
	changing bool       // an index is being built
	others   *sketch    // counts the queries of keys without an index
	halved   time.Time
	builds   *rate.Limiter
	scans    *rate.Limiter
}

type labelIndex struct {
	key     string
	queries atomic.Uint64
}

// use counts a query of a key and reports whether the key has an index. If not,
// the query is not counted.
func (l *labelIndexes) use(key string) bool {
	for _, in := range l.all() {
		if in.key == key {
			in.queries.Add(1)
			return true
		}
	}
	return false
}

func (l *labelIndexes) all() []*labelIndex {
	if p := l.indexes.Load(); p != nil {
		return *p
	}
	return nil
}

// miss counts a query of a key without an index. It reports whether the caller
// must build one and then call changed, and which index to drop for it, if any.
// exists reports whether any object has the key.
func (l *labelIndexes) miss(key string, now time.Time, exists func() bool) (queries uint64, drop *labelIndex, build bool) {
	if queries, drop, build = l.rank(key, now); !build {
		return queries, nil, false
	}
	if !exists() || !l.builds.AllowN(now, 1) {
		l.changed(nil)
		return queries, nil, false
	}
	return queries, drop, true
}

// rank counts a query of a key and compares the key with those that have an
// index. If it returns build, l.changing is set.
func (l *labelIndexes) rank(key string, now time.Time) (queries uint64, drop *labelIndex, build bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others == nil {
		l.others, l.halved = &sketch{seed: maphash.MakeSeed()}, now
		l.builds, l.scans = rate.NewLimiter(rate.Every(buildEvery), maxLabelIndexes), rate.NewLimiter(scanRate, 4*scanRate)
	}
	have := l.all()
	if now.Sub(l.halved) >= halfLife {
		// Only once, even after a long time: misses drive the halving, and hits in
		// the meantime must keep their weight.
		l.halved = now
		l.others.halve()
		for _, in := range have {
			in.queries.Store(in.queries.Load() / 2)
		}
	}
	queries = l.others.add(key)
	switch {
	case l.changing || slices.ContainsFunc(have, func(in *labelIndex) bool { return in.key == key }):
		return queries, nil, false
	case len(have) >= maxLabelIndexes:
		drop = slices.MinFunc(have, func(a, b *labelIndex) int { return int(a.queries.Load()) - int(b.queries.Load()) })
		if queries < 2 || queries <= drop.queries.Load() {
			return queries, nil, false
		}
	}
	l.changing = true
	return queries, drop, true
}

// changed ends a change that miss began. now lists all indexes, or is nil if they
// are the same as before.
func (l *labelIndexes) changed(now []*labelIndex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now != nil {
		l.indexes.Store(&now)
	}
	l.changing = false
}

// indexLabels counts the label keys of a query and builds indexes that it could
// have used. found reports whether the query found any object.
func (inf *Informer[T]) indexLabels(selector labels.Selector, found bool) {
	if selector == nil || inf.store.Latest().Len() < smallStore {
		return
	}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		if exact(r) && !inf.labels.use(r.Key()) {
			inf.indexLabel(r.Key(), found)
		}
	}
}

func (inf *Informer[T]) indexLabel(key string, found bool) {
	l, now := &inf.labels, time.Now()
	queries, drop, build := l.miss(key, now, func() bool {
		return found || l.scans.AllowN(now, min(inf.store.Latest().Len(), 4*scanRate)) && inf.hasLabel(key)
	})
	if !build {
		return
	}
	kept := slices.Clone(l.all())
	if drop != nil {
		inf.store.DropIndex(labelIndexPrefix + drop.key)
		kept = slices.DeleteFunc(kept, func(in *labelIndex) bool { return in == drop })
	}
	// The name cannot be taken: only label indexes have the prefix.
	_ = inf.store.AddIndex(labelIndexPrefix+key, func(values []string, held Object) []string {
		if value, ok := held.GetLabels()[key]; ok {
			values = append(values, value)
		}
		return values
	})
	added := &labelIndex{key: key}
	added.queries.Store(queries)
	l.changed(append(kept, added))
}

// hasLabel reports whether any object has the key.
func (inf *Informer[T]) hasLabel(key string) bool {
	v := inf.store.Pin()
	defer v.Release()
	for _, held := range v.All() {
		if _, ok := held.GetLabels()[key]; ok {
			return true
		}
	}
	return false
}

// sketch is a count-min sketch: it counts any number of keys in constant memory.
// A count is never too low and rarely too high.
type sketch struct {
	seed   maphash.Seed
	counts [4][512]uint32
}

// add counts a key and returns its count.
func (s *sketch) add(key string) uint64 {
	h := maphash.String(s.seed, key)
	at := func(row int) *uint32 { return &s.counts[row][h>>(row*16)%uint64(len(s.counts[row]))] }
	least := ^uint32(0) - 1
	for row := range s.counts {
		least = min(least, *at(row))
	}
	for row := range s.counts {
		*at(row) = max(*at(row), least+1)
	}
	return uint64(least) + 1
}

func (s *sketch) halve() {
	for row := range s.counts {
		for i := range s.counts[row] {
			s.counts[row][i] /= 2
		}
	}
}
