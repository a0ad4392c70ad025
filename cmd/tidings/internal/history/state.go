package history

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// BeginError says that a moment is before the history begins.
type BeginError struct {
	Of    Resource
	Begin time.Time // zero: there is no history yet
}

func (e *BeginError) Error() string {
	if e.Begin.IsZero() {
		return fmt.Sprintf("there is no history of %s yet", e.Of)
	}
	return fmt.Sprintf("the history of %s begins at %s", e.Of, e.Begin.Format(time.RFC3339))
}

// FutureError says that the history has not reached a moment.
type FutureError struct {
	Of              Resource
	Time            time.Time
	ResourceVersion uint64
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("the history of %s reaches up to %s (resourceVersion %d)", e.Of, e.Time.Format(time.RFC3339), e.ResourceVersion)
}

// State is the state of a resource at a moment. It must be closed. It is for one
// goroutine at a time.
type State struct {
	// Time and ResourceVersion of the newest change that the state has.
	Time            time.Time
	ResourceVersion uint64
	// Gap, if not nil, is the gap that the moment lies in. Then the state is the one
	// before the gap.
	Gap *Gap

	series *Series
	chain  []window // the state is the newest version of each object in these windows
	seq    uint64   // up to this change
	snap   *pebble.Snapshot
}

// damaged wraps an error of the storage engine.
func (s *State) damaged(err error) error {
	if err == nil {
		return nil
	}
	return s.series.damaged(fmt.Errorf("at %s (resourceVersion %d): %w", s.Time.Format(time.RFC3339), s.ResourceVersion, err))
}

// Series is the series of the state.
func (s *State) Series() *Series { return s.series }

// Close releases the state.
func (s *State) Close() error { return s.snap.Close() }

// at returns the state after the change seq of the window at index i. It closes the
// snapshot.
func (r *Series) at(p pinned, i int, seq uint64) *State {
	w := p.windows[i]
	return &State{series: r, chain: p.chain(i), seq: seq, snap: p.snap, Time: w.Begun, ResourceVersion: w.ResourceVersion}
}

// stateBefore returns the state at the beginning of a window that has no checkpoint.
func (r *Series) stateBefore(x window) (*State, error) {
	p := r.pin()
	for i, w := range p.windows {
		if w.First == x.First && i > 0 {
			return r.at(p, i-1, x.First-1), nil
		}
	}
	return nil, errors.Join(fmt.Errorf("the window %d has been dropped", x.First), p.snap.Close())
}

// newest returns the newest state, nil if there is none.
func (r *Series) newest() (*State, error) {
	p := r.pin()
	if len(p.windows) == 0 {
		return nil, p.snap.Close()
	}
	return r.at(p, len(p.windows)-1, p.next-1), nil
}

// At returns the state at a time. It fails with a [*BeginError] or a [*FutureError] if
// the history does not reach it.
func (r *Series) At(at time.Time) (*State, error) {
	p := r.pin()
	windows := p.windows
	upTo := at // or the beginning of the gap
	var gap *Gap
	for _, g := range r.Gaps(at, at) {
		gap, upTo = &g, g.From
	}
	i := len(windows) - 1
	for i >= 0 && windows[i].Begun.After(upTo) { // after the clock went back, the newest window that has the time
		i--
	}
	if i < 0 && gap != nil && len(windows) > 0 { // the first list was not complete
		i, upTo = 0, windows[0].Begun
	}
	if i < 0 {
		return nil, errors.Join(r.before(windows), p.snap.Close())
	}
	w := windows[i]
	s := r.at(p, i, w.First-1)
	s.Gap = gap
	b, err := r.find(s.snap, w, p.end(i), func(b batch) bool { return !b.time.After(upTo) })
	if err != nil {
		return nil, errors.Join(s.damaged(err), s.Close())
	}
	if b != nil {
		s.seq, s.Time, s.ResourceVersion = b.last(), b.time, b.end
	}
	if p.seen.Listing && s.seq >= p.seen.Since {
		return r.beforeList(s, p)
	}
	if i == len(windows)-1 && at.After(p.seen.Time) && !p.writing {
		s.Gap = &Gap{From: p.seen.Time, After: p.seen.ResourceVersion, Reason: "nothing has been recorded since"}
	}
	return s, nil
}

// AtVersion returns the state at a resourceVersion. After a restore of the cluster, a
// version may mean two states; it means the newer one.
func (r *Series) AtVersion(version uint64) (*State, error) {
	p := r.pin()
	windows := p.windows
	switch {
	case len(windows) == 0:
		return nil, errors.Join(r.before(windows), p.snap.Close())
	case version > p.seen.ResourceVersion:
		return nil, errors.Join(&FutureError{r.Of, p.seen.Time, p.seen.ResourceVersion}, p.snap.Close())
	}
	i, asked := p.windowOf(version), version
	gap := r.gapOf(p, i, version)
	if gap != nil {
		version = gap.After
		i = p.windowOf(version)
	}
	w := windows[i]
	s := r.at(p, i, w.First-1)
	fail := func(err error) (*State, error) { return nil, errors.Join(err, s.Close()) }
	if i == 0 && version < w.ResourceVersion {
		return fail(r.before(windows))
	}
	end := p.end(i)
	b, err := r.find(s.snap, w, end, func(b batch) bool { return b.end <= version })
	if err != nil {
		return fail(s.damaged(err))
	}
	if b != nil {
		s.seq, s.Time, s.ResourceVersion = b.last(), b.time, b.end
	} else if i == 0 && w.ResourceVersion == 0 {
		return fail(r.before(windows)) // before the first list
	}
	if gap == nil && s.seq+1 < end && s.ResourceVersion < version { // the next batch may have begun before
		b, err := r.batchAt(s.snap, w, s.seq+1)
		if err != nil {
			return fail(s.damaged(err))
		}
		if b.relist {
			gap = &Gap{From: s.Time, To: b.time, After: s.ResourceVersion, Before: b.end, Reason: "relist"}
		}
		for _, e := range b.events {
			if b.relist || e.resourceVersion > version {
				break
			}
			s.seq, s.Time, s.ResourceVersion = s.seq+1, b.time, e.resourceVersion
		}
	}
	if p.seen.Listing && s.seq >= p.seen.Since {
		return r.beforeList(s, p)
	}
	s.ResourceVersion, s.Gap = asked, gap
	return s, nil
}

// windowOf returns the index of the newest window that begins before a version.
func (p pinned) windowOf(version uint64) int {
	i := len(p.windows) - 1
	for i > 0 && p.windows[i].ResourceVersion > version {
		i--
	}
	return i
}

// beforeList returns the state before the list that is being written. It replaces s, which
// has a part of that list.
func (r *Series) beforeList(s *State, p pinned) (*State, error) {
	i := len(p.windows) - 1
	for i > 0 && p.windows[i].First >= p.seen.Since {
		i--
	}
	if p.windows[i].First >= p.seen.Since {
		return nil, errors.Join(r.before(nil), s.Close())
	}
	s = r.at(p, i, p.seen.Since-1)
	b, err := r.find(s.snap, p.windows[i], p.end(i), func(b batch) bool { return b.last() < p.seen.Since })
	if err != nil {
		return nil, errors.Join(s.damaged(err), s.Close())
	}
	if b != nil {
		s.Time, s.ResourceVersion = b.time, b.end
	}
	s.Gap = &Gap{From: s.Time, After: s.ResourceVersion, Reason: "the list that follows is not complete"}
	return s, nil
}

func (r *Series) before(windows []window) error {
	return &BeginError{Of: r.Of, Begin: begin(windows)}
}

// damaged wraps an error of the storage engine.
func (r *Series) damaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read the history of %s: %w", r.Of, err)
}

// find returns the last batch of a window that is early, without its events; nil if none
// is. If a batch is early, so are all batches before it.
func (r *Series) find(from pebble.Reader, w window, end uint64, early func(batch) bool) (*batch, error) {
	it, err := r.store.logIter(from, r.id, w.First)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var failed error
	// The first change at which the batch that has it is late.
	n := sort.Search(int(end-w.First), func(n int) bool {
		if failed != nil {
			return true
		}
		if !it.SeekLT(logKey(r.id, w.First, w.First+uint64(n)+1)) {
			failed = errors.Join(it.Error(), errDamaged)
			return true
		}
		b, err := headOf(it)
		if err != nil {
			failed = err
			return true
		}
		return !early(b)
	})
	if failed != nil || n == 0 {
		return nil, failed
	}
	if !it.SeekLT(logKey(r.id, w.First, w.First+uint64(n))) {
		return nil, errors.Join(it.Error(), errDamaged)
	}
	b, err := headOf(it)
	return &b, err
}

// batchAt returns the batch that begins with a change.
func (r *Series) batchAt(from pebble.Reader, w window, seq uint64) (batch, error) {
	value, closer, err := from.Get(logKey(r.id, w.First, seq))
	if err != nil {
		return batch{}, err
	}
	defer closer.Close()
	b, err := parseBatch(value, false)
	b.first = seq
	return b, err
}

// logIter iterates over the log of a window.
func (s *Store) logIter(from pebble.Reader, series uint32, first uint64) (*pebble.Iterator, error) {
	prefix := append(dataKey(series, first), dataLog)
	return from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
}

// headOf decodes the batch at an iterator of the log, without its events.
func headOf(it *pebble.Iterator) (batch, error) {
	b, err := parseBatch(it.Value(), true)
	b.first = seqOf(it.Key())
	return b, err
}

// Get returns one object; ok is false if it did not exist.
func (s *State) Get(key string) (v Version, ok bool, err error) {
	for i := len(s.chain) - 1; i >= 0; i-- {
		prefix := objectKey(s.series.id, s.chain[i].First, key)
		it, err := s.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		if err != nil {
			return v, false, s.damaged(err)
		}
		found := it.SeekLT(versionKey(s.series.id, s.chain[i].First, key, s.seq+1))
		if found {
			v, err = parseVersion(bytes.Clone(it.Value()))
			v.Key, v.Seq = key, seqOf(it.Key())
		}
		if err := errors.Join(err, it.Error(), it.Close()); err != nil {
			return v, false, s.damaged(err)
		}
		if found {
			return v, v.Type != Deleted, nil
		}
	}
	return v, false, nil
}

// All yields the objects of a namespace, or of all if that is empty, whose keys are
// after a key, in the order of keys. The versions' bytes are only valid until the next
// iteration. An error is yielded last.
func (s *State) All(namespace, from string) iter.Seq2[Version, error] {
	return func(yield func(Version, error) bool) {
		var its []*objects // of each window, oldest first
		var now []byte
		defer func() {
			for _, it := range its {
				_ = it.it.Close()
			}
		}()
		for _, w := range s.chain {
			it, err := s.objects(w, namespace, from)
			if err != nil {
				yield(Version{}, s.damaged(err))
				return
			}
			its = append(its, it)
			it.next()
		}
		for {
			var key []byte
			for _, it := range its {
				if it.err != nil {
					yield(Version{}, s.damaged(it.err))
					return
				}
				if it.key != nil && (key == nil || bytes.Compare(it.key, key) < 0) {
					key = it.key
				}
			}
			if key == nil {
				return
			}
			key = append(now[:0], key...)
			now = key
			newest := true
			for _, it := range slices.Backward(its) {
				if !bytes.Equal(it.key, key) {
					continue
				}
				if it.found && newest {
					newest = false
					v, err := parseVersion(it.value)
					if err != nil {
						yield(Version{}, s.damaged(err))
						return
					}
					v.Seq, v.Key = it.seq, unescapeObject(key)
					if v.Type != Deleted && !yield(v, nil) {
						return
					}
				}
				it.next()
			}
		}
	}
}

// objects iterates over the objects of one window.
type objects struct {
	it    *pebble.Iterator
	until uint64 // the newest change that counts
	valid bool   // the iterator is at the next object
	err   error

	key   []byte // escaped; nil at the end
	found bool   // the object has a version that counts
	seq   uint64
	value []byte
}

func (s *State) objects(w window, namespace, from string) (*objects, error) {
	lower := objectsKey(s.series.id, w.First)
	upper := after(lower)
	if namespace != "" {
		lower = appendObject(lower, namespace+"/")
		upper = after(lower)
	}
	if from != "" {
		if next := append(objectKey(s.series.id, w.First, from)[:], 0xff); bytes.Compare(next, lower) > 0 {
			lower = next
		}
	}
	it, err := s.snap.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, err
	}
	return &objects{it: it, until: s.seq, valid: it.First()}, nil
}

// next goes on to the next object.
func (o *objects) next() {
	o.found = false
	if !o.valid {
		o.key, o.err = nil, o.it.Error()
		return
	}
	object, _, ok := parseVersionKey(o.it.Key())
	if !ok {
		o.err = errDamaged
		return
	}
	o.key = append(o.key[:0], object...)
	for o.valid {
		object, seq, ok := parseVersionKey(o.it.Key())
		if !ok {
			o.err = errDamaged
			return
		}
		if !bytes.Equal(object, o.key) {
			return
		}
		if seq <= o.until {
			o.found, o.seq = true, seq
			o.value = append(o.value[:0], o.it.Value()...)
		}
		o.valid = o.it.Next()
	}
	o.err = o.it.Error()
}

// Cursor identifies the state.
func (s *State) Cursor() string { return cursorOf(s.series.id, s.seq) }

func cursorOf(series uint32, seq uint64) string { return fmt.Sprintf("%d.%d", series, seq) }

func parseCursor(s string) (series uint32, seq uint64, ok bool) {
	id, at, ok := strings.Cut(s, ".")
	n, err := strconv.ParseUint(id, 10, 32)
	if err == nil && ok {
		seq, err = strconv.ParseUint(at, 10, 64)
	}
	return uint32(n), seq, ok && err == nil && seq < math.MaxUint64
}

// Earlier returns the state of a cursor, if it is of the same series, and all changes
// between that state and this one arrived in the last slack before the newest of them;
// nil otherwise, or if the state is no longer kept.
func (s *State) Earlier(cursor string, slack time.Duration) (*State, error) {
	r := s.series
	id, seq, ok := parseCursor(cursor)
	if !ok || id != r.id || seq >= s.seq {
		return nil, nil
	}
	p := r.pin()
	i := len(p.windows) - 1
	for i >= 0 && p.windows[i].First > seq+1 {
		i--
	}
	none := func(err error) (*State, error) { return nil, errors.Join(r.damaged(err), p.snap.Close()) }
	if i < 0 || seq >= p.next {
		return none(nil)
	}
	it, err := r.store.logIter(p.snap, r.id, p.windows[i].First)
	if err != nil {
		return none(err)
	}
	defer it.Close()
	if it.SeekGE(logKey(r.id, p.windows[i].First, seq+1)) { // the first change that the state lacks
		b, err := headOf(it)
		if err != nil || s.Time.Sub(b.time) > slack {
			return none(err)
		}
	} else if err := it.Error(); err != nil || s.Time.Sub(p.windows[i].Begun) > slack {
		return none(err)
	}
	out := r.at(p, i, seq)
	out.Time, out.ResourceVersion, out.Gap = s.Time, s.ResourceVersion, s.Gap
	return out, nil
}
