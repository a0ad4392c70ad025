package history

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"
)

// Change is one change of a series.
type Change struct {
	Version
	// Before is the object's version before the change; nil if it did not exist, or is
	// not kept any more.
	Before *Version
	// Relist says that the change was found by a list, when and in whatever order it
	// happened.
	Relist bool
	// End says that it is the last change of its batch, after which the series is at
	// SeriesVersion. A watch can go on after any change of a batch that is no relist.
	End           bool
	SeriesVersion uint64
}

// Log is a cursor over the changes of a series, in order. It is for one goroutine.
type Log struct {
	series  *Series
	match   func(key string) bool // nil: of one object
	key     string                // of that object
	watch   bool                  // the changes that match does not accept are yielded, too, without the object
	alone   bool                  // without the versions before
	bare    bool                  // without the objects
	bunch   int                   // number of changes that are read together, 0 at first
	next    uint64                // the next change
	last    uint64                // the last change that was yielded
	passed  uint64                // SeriesVersion of the last change before next
	reached uint64                // see Reached
}

// Versions are sorted by object, so that the more changes are read together, the fewer
// blocks are read twice.
const (
	// firstBunch is how many the first are, mostTogether the most.
	firstBunch, mostTogether = 512, 8192
	// readBytes is the memory for all logs that are being read, about; leastBytes that of
	// one at least. A single change may take more.
	readBytes, leastBytes = 32 << 20, 1 << 20
	// mostParts is how many CPUs read together.
	mostParts = 4
)

// ChangesAfter returns the changes of the objects that match accepts, in order, after the
// change that a cursor of the state or of one of its logs names; nil if it names none
// after the state. They go on where the series ends: a later call of [Log.Read] returns
// what has been recorded since.
func (s *State) ChangesAfter(cursor string, match func(key string) bool) *Log {
	id, seq, ok := parseCursor(cursor)
	if !ok || id != s.series.id || seq < s.seq {
		return nil
	}
	return &Log{series: s.series, match: match, next: seq + 1, last: seq, reached: s.ResourceVersion}
}

// WatchAfter returns all changes after the state. Those of objects that match does not
// accept have no Object; the others have a Before only if before is true.
func (s *State) WatchAfter(match func(key string) bool, before bool) *Log {
	l := s.ChangesAfter(s.Cursor(), match)
	l.watch, l.alone = true, !before
	return l
}

// Changes returns all changes of a series that are kept, or those after the one that a
// cursor names, as [State.ChangesAfter] does; nil if it names one of another series.
func (r *Series) Changes(cursor string, match func(key string) bool) *Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &Log{series: r, match: match, next: r.next}
	if len(r.windows) > 0 {
		l.next, l.reached = r.windows[0].First, r.windows[0].ResourceVersion
	}
	l.last = l.next - 1
	if cursor == "" {
		return l
	}
	id, seq, ok := parseCursor(cursor)
	if !ok || id != r.id || seq < l.last {
		return nil
	}
	l.next, l.last = seq+1, seq
	return l
}

// ChangesOf is [State.ChangesAfter] for one object. It reads the object's versions and
// nothing else.
func (s *State) ChangesOf(cursor, key string) *Log {
	l := s.ChangesAfter(cursor, nil)
	if l != nil {
		l.key = key
	}
	return l
}

// Times yields the times of the changes that [Log.Read] would yield, without reading their
// objects.
func (l *Log) Times(ctx context.Context, until time.Time) iter.Seq2[time.Time, error] {
	l.bare = true
	return func(yield func(time.Time, error) bool) {
		for c, err := range l.Read(ctx, until) {
			if !yield(c.Time, err) {
				return
			}
		}
	}
}

// Cursor names the last change that was read, for [State.ChangesAfter].
func (l *Log) Cursor() string { return cursorOf(l.series.id, l.last) }

// Reached is the resourceVersion of the series up to which all changes that the log
// selects have been read.
func (l *Log) Reached() uint64 { return l.reached }

// Read yields the changes that have been recorded and were not read before, up to and
// including a time if that is not zero. An error is yielded last.
func (l *Log) Read(ctx context.Context, until time.Time) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		p := l.series.pin()
		defer p.snap.Close()
		store := l.series.store
		defer store.reading.Add(-1)
		store.reading.Add(1)
		for ctx.Err() == nil {
			found, done, err := l.read(p, until, max(store.opts.readBytes/int(store.reading.Load()), min(leastBytes, store.opts.readBytes)))
			if err != nil {
				yield(Change{}, l.series.damaged(err))
				return
			}
			for _, c := range found {
				l.last, l.reached = c.Seq, c.SeriesVersion
				if !yield(c, nil) {
					return
				}
			}
			if done {
				if l.reached = cmp.Or(l.passed, l.reached); l.next >= p.next {
					l.reached = p.seen.ResourceVersion
				}
				return
			}
		}
		yield(Change{}, context.Cause(ctx))
	}
}

// ErrDropped says that the next changes of a log are no longer kept.
var ErrDropped = errors.New("the changes are no longer kept")

// read returns the next changes that are to be yielded, with about so many bytes of versions
// at most. done says that there are no more.
func (l *Log) read(p pinned, until time.Time, most int) (found []Change, done bool, err error) {
	r := l.series
	windows := p.windows
	if len(windows) == 0 || l.next >= p.next {
		return nil, true, nil
	}
	if l.next < windows[0].First {
		return nil, false, ErrDropped
	}
	i := len(windows) - 1
	for windows[i].First > l.next {
		i--
	}
	if l.match == nil {
		return l.readObject(p, i, until, most)
	}
	w := windows[i]
	it, err := r.store.logIter(p.snap, r.id, w.First)
	if err != nil {
		return nil, false, err
	}
	defer it.Close()
	ok := it.SeekLT(logKey(r.id, w.First, l.next+1)) // the batch that has the next change
	for ; ok && len(found) < cmp.Or(l.bunch, firstBunch); ok = it.Next() {
		b, err := parseBatch(it.Value(), false)
		if err != nil {
			return nil, false, err
		}
		b.first = seqOf(it.Key())
		if !until.IsZero() && b.time.After(until) || b.first >= p.next { // the snapshot may have more than is known of
			done = true
			break
		}
		for n, e := range b.events {
			seq := b.first + uint64(n)
			if seq < l.next {
				continue
			}
			l.next = seq + 1
			c := b.place(Version{Seq: seq, Key: e.key, Type: e.typ, ResourceVersion: e.resourceVersion, Time: b.time})
			if l.passed = c.SeriesVersion; l.watch || l.match(e.key) {
				found = append(found, c)
			}
		}
	}
	if err := it.Error(); err != nil {
		return nil, false, err
	}
	if !ok && !done { // the window has been read
		if i+1 < len(windows) {
			l.next = max(l.next, windows[i+1].First)
		} else {
			done = true
		}
	}
	if l.bare {
		return found, done, nil
	}
	for {
		bytes, err := l.fetch(p, i, found, most)
		if err != nil {
			return nil, false, err
		}
		if bytes <= most || len(found) == 1 {
			if len(found) > 0 {
				l.bunch = min(most/(bytes/len(found)+1)+1, mostTogether)
			}
			return found, done, nil
		}
		found, done = slices.Clone(found[:len(found)/2]), false
		last := found[len(found)-1]
		l.next, l.passed = last.Seq+1, last.SeriesVersion
	}
}

// place returns the change of a batch that has made a version.
func (b batch) place(v Version) Change {
	c := Change{Version: v, Relist: b.relist, End: v.Seq == b.last(), SeriesVersion: v.ResourceVersion}
	if b.relist || c.End {
		c.SeriesVersion = b.end
	}
	return c
}

// readObject is read for the changes of one object. It reads a window at a time.
func (l *Log) readObject(p pinned, i int, until time.Time, most int) (found []Change, done bool, err error) {
	r, w := l.series, p.windows[i]
	log, err := r.store.logIter(p.snap, r.id, w.First)
	if err != nil {
		return nil, false, err
	}
	defer log.Close()
	placed := batches{it: log}
	prefix := objectKey(r.id, w.First, l.key)
	it, err := p.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, false, err
	}
	defer it.Close()
	var last *Version
	bytesRead := 0
	ok := it.SeekGE(versionKey(r.id, w.First, l.key, l.next))
	for ; ok && bytesRead < most && len(found) < mostTogether; ok = it.Next() {
		v, err := parseVersion(bytes.Clone(it.Value()))
		if err != nil {
			return nil, false, err
		}
		v.Key, v.Seq = l.key, seqOf(it.Key())
		if v.Type == held {
			last = &v
			continue
		}
		if !until.IsZero() && v.Time.After(until) || v.Seq >= p.next {
			done = true
			break
		}
		b, err := placed.of(v.Seq, logKey(r.id, w.First, v.Seq+1))
		if err != nil {
			return nil, false, err
		}
		if len(found) == 0 && last == nil && v.Type != Added {
			if last, err = l.beforeIn(p, i, l.key, v.Seq); err != nil {
				return nil, false, err
			}
		}
		c := b.place(v)
		if v.Type != Added {
			c.Before = last
		}
		found = append(found, c)
		bytesRead += len(v.Object)
		l.next, l.passed = v.Seq+1, c.SeriesVersion
		if last = &found[len(found)-1].Version; v.Type == Deleted {
			last = nil
		}
	}
	if err := it.Error(); err != nil {
		return nil, false, err
	}
	if !ok && !done { // the window has been read
		l.next = max(l.next, p.end(i))
		done = i+1 == len(p.windows)
	}
	return found, done, nil
}

// batches finds the batches of changes whose sequence numbers ascend.
type batches struct {
	it   *pebble.Iterator // of the log of a window, after last
	last batch            // without its events
}

// near is the number of batches that are passed sooner than another is sought.
const near = 16

func (l *batches) of(seq uint64, key []byte) (batch, error) {
	for range near {
		if l.last.count > 0 && seq <= l.last.last() {
			return l.last, nil
		}
		if !l.it.Valid() {
			break
		}
		var err error
		if l.last, err = headOf(l.it); err != nil {
			return batch{}, err
		}
		l.it.Next()
	}
	if !l.it.SeekLT(key) {
		return batch{}, errors.Join(l.it.Error(), errDamaged)
	}
	var err error
	l.last, err = headOf(l.it)
	l.it.Next()
	return l.last, err
}

// beforeIn returns the version of an object before a change of a window, nil if there is
// none.
func (l *Log) beforeIn(p pinned, i int, key string, seq uint64) (*Version, error) {
	s := State{series: l.series, chain: p.chain(i), seq: seq - 1, snap: p.snap}
	v, ok, err := s.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	return &v, nil
}

// fetch reads the versions of changes of a window, and those before, on several CPUs. It
// stops early if they take more memory than the most, and returns how much they take.
func (l *Log) fetch(p pinned, i int, changes []Change, most int) (taken int, err error) {
	var order []int
	for n, c := range changes {
		if !l.watch || l.match(c.Key) {
			order = append(order, n)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(changes[a].Key, changes[b].Key), cmp.Compare(changes[a].Seq, changes[b].Seq))
	})
	var group errgroup.Group
	parts := max(1, min(runtime.GOMAXPROCS(0), mostParts, len(order)))
	share := most / parts
	taking := make([]int, parts)
	for n := range parts {
		end := len(order) / (parts - n)
		for end > 0 && end < len(order) && changes[order[end-1]].Key == changes[order[end]].Key {
			end++ // the versions of an object are read together
		}
		part := order[:end]
		order = order[end:]
		group.Go(func() (err error) {
			taking[n], err = l.fetchPart(p, i, changes, part, share)
			return err
		})
	}
	err = group.Wait()
	for _, n := range taking {
		if taken += n; n > share { // it may have stopped early
			taken = max(taken, most+1)
		}
	}
	return taken, err
}

// fetchPart is fetch for some of the changes, sorted by object.
func (l *Log) fetchPart(p pinned, i int, changes []Change, order []int, most int) (taken int, err error) {
	if len(order) == 0 {
		return 0, nil
	}
	r, w := l.series, p.windows[i]
	prefix := objectsKey(r.id, w.First)
	it, err := p.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	read := func(key string) (Version, error) {
		taken += len(it.Value())
		v, err := parseVersion(bytes.Clone(it.Value()))
		v.Key, v.Seq = key, seqOf(it.Key())
		return v, err
	}
	var last *Change
	for _, at := range order {
		if taken > most {
			break
		}
		c := &changes[at]
		if !it.SeekGE(versionKey(r.id, w.First, c.Key, c.Seq)) || seqOf(it.Key()) != c.Seq {
			return 0, errors.Join(it.Error(), errDamaged)
		}
		if c.Version, err = read(c.Key); err != nil {
			return 0, err
		}
		switch {
		case c.Type == Added || l.alone:
		case last != nil && last.Key == c.Key:
			if last.Type != Deleted {
				c.Before = &last.Version
			}
		case it.Prev() && bytes.HasPrefix(it.Key(), objectKey(r.id, w.First, c.Key)): // in most cases, in the same block
			v, err := read(c.Key)
			if err != nil {
				return 0, err
			}
			if v.Type != Deleted {
				c.Before = &v
			}
		case it.Error() != nil:
			return 0, it.Error()
		case !w.Complete:
			if c.Before, err = l.beforeIn(p, i, c.Key, c.Seq); err != nil {
				return 0, err
			}
		}
		last = c
	}
	return taken, nil
}
