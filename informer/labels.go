package informer

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Below this size a scan is as good as an index, and costs nothing to keep.
const smallStore = 256

const (
	// maxLabelIndexes is how many label keys have an index: keys are taken from
	// queries, which may come from anybody. The others are scanned.
	maxLabelIndexes = 32
	// buildEvery is how often an index is made, once there have been as many as
	// there may be. It is not free in a large store.
	buildEvery = time.Second
	// lookedAt is how many objects are looked at in a second to find out whether
	// any has a key of which nothing was found.
	lookedAt = 1_000_000
	// window is the time in which half of what has been counted is forgotten.
	window = 10 * time.Second
)

// labelled is what the names of indexes of labels begin with.
const labelled = "label "

// labelIndexes decides which label keys have an index: those that have been asked
// for the most lately, of those that objects have.
type labelIndexes struct {
	indexes atomic.Pointer[[]*labelIndex] // that there are

	mu       sync.Mutex // held for a moment by who asks for a key without one
	changing bool       // somebody makes one
	others   *sketch    // how often keys without an index have been asked for
	forgot   time.Time
	builds   *rate.Limiter
	looks    *rate.Limiter
}

type labelIndex struct {
	key   string
	asked atomic.Uint64
}

// use counts that a key was asked for. It is false if the key has no index.
func (l *labelIndexes) use(key string) bool {
	for _, in := range l.all() {
		if in.key == key {
			in.asked.Add(1)
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

// miss counts that a key without an index was asked for, and says whether it
// should have one, and instead of which. Then changed must be called. exists says
// whether any object has the key.
func (l *labelIndexes) miss(key string, now time.Time, exists func() bool) (asked uint64, instead *labelIndex, should bool) {
	if asked, instead, should = l.rank(key, now); !should {
		return asked, nil, false
	}
	if !exists() || !l.builds.AllowN(now, 1) {
		l.changed(nil)
		return asked, nil, false
	}
	return asked, instead, true
}

func (l *labelIndexes) rank(key string, now time.Time) (asked uint64, instead *labelIndex, should bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others == nil {
		l.others, l.forgot = &sketch{seed: maphash.MakeSeed()}, now
		l.builds, l.looks = rate.NewLimiter(rate.Every(buildEvery), maxLabelIndexes), rate.NewLimiter(lookedAt, 4*lookedAt)
	}
	have := l.all()
	if now.Sub(l.forgot) >= window {
		// Once, however long ago: what was used all along must not seem unused.
		l.forgot = now
		l.others.halve()
		for _, in := range have {
			in.asked.Store(in.asked.Load() / 2)
		}
	}
	asked = l.others.add(key)
	switch {
	case l.changing || slices.ContainsFunc(have, func(in *labelIndex) bool { return in.key == key }):
		return asked, nil, false
	case len(have) >= maxLabelIndexes:
		instead = slices.MinFunc(have, func(a, b *labelIndex) int { return int(a.asked.Load()) - int(b.asked.Load()) })
		if asked < 2 || asked <= instead.asked.Load() {
			return asked, nil, false
		}
	}
	l.changing = true
	return asked, instead, true
}

// changed ends what miss has begun, with the indexes that there are now, or nil
// if they are the same.
func (l *labelIndexes) changed(now []*labelIndex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now != nil {
		l.indexes.Store(&now)
	}
	l.changing = false
}

// indexLabels counts the label keys that a query has asked for, and makes the
// indexes that it would have used. found says that something was found.
func (inf *Informer[T]) indexLabels(q Query, found bool) {
	if q.Labels == nil || inf.engine.latest().objects < smallStore {
		return
	}
	requirements, _ := q.Labels.Requirements()
	for _, r := range requirements {
		if exact(r) && !inf.labels.use(r.Key()) {
			inf.indexLabel(r.Key(), found)
		}
	}
}

func (inf *Informer[T]) indexLabel(key string, found bool) {
	l, now := &inf.labels, time.Now()
	asked, instead, should := l.miss(key, now, func() bool {
		return found || l.looks.AllowN(now, min(inf.engine.latest().objects, 4*lookedAt)) && inf.engine.hasLabel(key)
	})
	if !should {
		return
	}
	kept := slices.Clone(l.all())
	if instead != nil {
		inf.engine.dropLabelIndex(instead.key)
		kept = slices.DeleteFunc(kept, func(in *labelIndex) bool { return in == instead })
	}
	// The name cannot be taken: nobody else makes names like this one.
	_ = inf.engine.addLabelIndex(key)
	added := &labelIndex{key: key}
	added.asked.Store(asked)
	l.changed(append(kept, added))
}

// sketch counts keys in little memory, whatever their number: a count is never
// too low, and seldom too high (a count-min sketch).
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
