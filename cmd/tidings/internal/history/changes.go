package history

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
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

// Log is a cursor over the changes of a series, in order. It must be closed. It is for
// one goroutine.
type Log struct {
	series *Series
	match  func(key string) bool
	next   uint64 // the next change
	last   uint64 // the last change that was yielded
}

// bunch is the number of changes whose versions are read together. Versions are sorted by
// object, so that the more are read together, the fewer blocks are read twice.
const bunch = 1024

// ChangesAfter returns the changes of the objects that match accepts, in order, after the
// change that a cursor of the state or of one of its logs names; nil if it names none
// after the state. They go on where the series ends: a later call of [Log.Read] returns
// what has been recorded since.
func (s *State) ChangesAfter(cursor string, match func(key string) bool) *Log {
	id, seq, ok := parseCursor(cursor)
	if !ok || id != s.series.id || seq < s.seq {
		return nil
	}
	return &Log{series: s.series, match: match, next: seq + 1, last: seq}
}

// Cursor names the last change that was read, for [State.ChangesAfter].
func (l *Log) Cursor() string { return cursorOf(l.series.id, l.last) }

// Gaps lists the gaps that end after since and begin before until, oldest first.
func (l *Log) Gaps(since, until time.Time) []Gap { return l.series.Gaps(since, until) }

// Read yields the changes that have been recorded and were not read before, up to and
// including a time if that is not zero. An error is yielded last.
func (l *Log) Read(ctx context.Context, until time.Time) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		p := l.series.pin()
		defer p.snap.Close()
		for ctx.Err() == nil {
			found, done, err := l.read(p, until)
			if err != nil {
				yield(Change{}, l.series.damaged(err))
				return
			}
			for _, c := range found {
				if l.last = c.Seq; !yield(c, nil) {
					return
				}
			}
			if done {
				return
			}
		}
		yield(Change{}, context.Cause(ctx))
	}
}

// ErrDropped says that the next changes of a log are no longer kept.
var ErrDropped = errors.New("the changes are no longer kept")

// read returns the next changes, whose objects match. done says that there are no more.
func (l *Log) read(p pinned, until time.Time) (found []Change, done bool, err error) {
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
	w := windows[i]
	it, err := r.store.logIter(p.snap, r.id, w.First)
	if err != nil {
		return nil, false, err
	}
	defer it.Close()
	ok := it.SeekLT(logKey(r.id, w.First, l.next+1)) // the batch that has the next change
	for ; ok && len(found) < bunch; ok = it.Next() {
		b, err := parseBatch(it.Value(), false)
		if err != nil {
			return nil, false, err
		}
		if !until.IsZero() && b.time.After(until) {
			done = true
			break
		}
		b.first = seqOf(it.Key())
		for n, e := range b.events {
			seq := b.first + uint64(n)
			if seq < l.next {
				continue
			}
			l.next = seq + 1
			if !l.match(e.key) {
				continue
			}
			at := e.resourceVersion
			if b.relist || n == len(b.events)-1 {
				at = b.end
			}
			found = append(found, Change{
				Version: Version{Seq: seq, Key: e.key, Type: e.typ, ResourceVersion: e.resourceVersion, Time: b.time},
				Relist:  b.relist, End: n == len(b.events)-1, SeriesVersion: at,
			})
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
	return found, done, l.fetch(p, i, found)
}

// fetch reads the versions of changes of a window, and those before.
func (l *Log) fetch(p pinned, i int, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	order := make([]int, len(changes))
	for n := range order {
		order[n] = n
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(changes[a].Key, changes[b].Key), cmp.Compare(changes[a].Seq, changes[b].Seq))
	})
	r, w := l.series, p.windows[i]
	prefix := objectsKey(r.id, w.First)
	it, err := p.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer it.Close()
	var last *Change
	for _, at := range order {
		c := &changes[at]
		if !it.SeekGE(versionKey(r.id, w.First, c.Key, c.Seq)) || seqOf(it.Key()) != c.Seq {
			return errors.Join(it.Error(), errDamaged)
		}
		v, err := parseVersion(bytes.Clone(it.Value()))
		if err != nil {
			return err
		}
		v.Seq, v.Key = c.Seq, c.Key
		c.Version = v
		switch {
		case c.Type == Added:
		case last != nil && last.Key == c.Key:
			if last.Type != Deleted {
				c.Before = &last.Version
			}
		case it.Prev() && bytes.HasPrefix(it.Key(), objectKey(r.id, w.First, c.Key)): // in most cases, in the same block
			v, err := parseVersion(bytes.Clone(it.Value()))
			if err != nil {
				return err
			}
			if v.Seq, v.Key = seqOf(it.Key()), c.Key; v.Type != Deleted {
				c.Before = &v
			}
		case it.Error() != nil:
			return it.Error()
		case !w.Complete:
			before := State{series: r, chain: p.chain(i), seq: c.Seq - 1, snap: p.snap}
			v, ok, err := before.Get(c.Key)
			if err != nil {
				return err
			}
			if ok {
				c.Before = &v
			}
		}
		last = c
	}
	return nil
}

// Timeline returns the changes of one object between two times, oldest first. It is
// bounded by limit; more reports whether there are others after the last.
func (r *Series) Timeline(ctx context.Context, key string, since, until time.Time, limit int) (found []Change, more bool, err error) {
	p := r.pin()
	defer p.snap.Close()
	first := 0
	for i, w := range p.windows { // the window that has since, or the nearest before that has a checkpoint
		if w.Complete && !w.Begun.After(since) {
			first = i
		}
	}
	var last *Version
	for _, w := range p.windows[first:] {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		prefix := objectKey(r.id, w.First, key)
		it, err := p.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		if err != nil {
			return nil, false, r.damaged(err)
		}
		for ok := it.First(); ok && err == nil; ok = it.Next() {
			var v Version
			if v, err = parseVersion(bytes.Clone(it.Value())); err != nil {
				break
			}
			v.Key, v.Seq = key, seqOf(it.Key())
			if v.Type != held && v.Time.After(since) && !v.Time.After(until) {
				if len(found) == limit {
					more = true
					break
				}
				found = append(found, Change{Version: v, Before: last})
			}
			if last = &v; v.Type == Deleted {
				last = nil
			}
		}
		if err := errors.Join(err, it.Error(), it.Close()); err != nil {
			return nil, false, r.damaged(err)
		}
		if more {
			break
		}
	}
	return found, more, nil
}
