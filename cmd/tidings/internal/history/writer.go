package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Writer writes a series. There is one at a time. Its methods must not be called
// concurrently.
type Writer struct {
	series  *Series
	cut     chan struct{} // closed to end the checkpoint in progress
	pending chan struct{} // closed when the checkpoint in progress has ended
	objects int           // that exist
	buf     []byte        // for one record
	// failedAt is when the last checkpoint failed, the zero time if it did not.
	failedAt time.Time
}

// Batch is what [Writer.Append] writes.
type Batch struct {
	Time time.Time
	// ResourceVersion of the series after the batch.
	ResourceVersion uint64
	// Afresh says that the batch begins a list of everything that exists: the state
	// before is not known, because it cannot be read.
	Afresh bool
	// Relist says that the changes were found by a list. [Writer.Seen] ends the list;
	// until then, readers see the state before it.
	Relist bool
	// Changes are in the order in which they happened. Of each version, the writer sets
	// Seq and Time. There may be none in the batch of a list.
	Changes []Version
	// Thinned are newer versions of objects, whole, which are kept for [Series.Newest]
	// only.
	Thinned []Version
	// Objects is the number of objects that exist after the batch, or 0 if it is
	// unknown. It decides when the next window begins.
	Objects int
}

// ErrBusy says that a series has a writer already.
var ErrBusy = errors.New("the history is being written already")

// Writer begins to write the series of a resource.
func (s *Store) Writer(of Resource) (*Writer, error) {
	r, err := s.open(of)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writing {
		return nil, fmt.Errorf("%s: %w", of, ErrBusy)
	}
	r.writing = true
	w := &Writer{series: r}
	w.checkpoint()
	return w, nil
}

// Series is the series that is written.
func (w *Writer) Series() *Series { return w.series }

// Last returns how far an earlier writer of the series has seen it; the zero time if
// there was none. clean is false if that writer was not closed. A list that was not
// complete does not count.
func (w *Writer) Last() (at time.Time, resourceVersion uint64, clean bool) {
	r := w.series
	r.mu.Lock()
	defer r.mu.Unlock()
	at, resourceVersion, clean = r.seen.Time, r.seen.ResourceVersion, !r.seen.Open
	if !r.seen.Listing {
		return at, resourceVersion, clean
	}
	for _, g := range slices.Backward(r.gaps) {
		if g.Seq == r.seen.Since {
			return g.From, g.After, clean
		}
	}
	return r.windows[0].Begun.Add(-1), 0, clean // it was the first list
}

// Close ends the writer at a moment up to which it has seen everything.
func (w *Writer) Close(at time.Time) error {
	r := w.series
	r.mu.Lock()
	if w.cut != nil {
		close(w.cut)
		r.mu.Unlock()
		<-w.pending
		r.mu.Lock()
	}
	seen := r.seen
	r.writing = false
	r.mu.Unlock()
	if seen.Time.IsZero() {
		return nil
	}
	if at.After(seen.Time) {
		seen.Time = at
	}
	seen.Open = false
	return w.progress(seen)
}

// Seen records that nothing but the changes that were appended has happened up to a
// moment and a resourceVersion.
func (w *Writer) Seen(at time.Time, resourceVersion uint64) error {
	w.series.mu.Lock()
	seen := w.series.seen
	w.series.mu.Unlock()
	if seen.Time.IsZero() { // the history begins with its first batch
		return nil
	}
	seen.Open, seen.Listing, seen.Since = true, false, 0
	if at.After(seen.Time) {
		seen.Time = at
	}
	seen.ResourceVersion = max(seen.ResourceVersion, resourceVersion)
	return w.progress(seen)
}

func (w *Writer) progress(p progress) error {
	value, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := w.series.store.set(progressKey(w.series.id), value); err != nil {
		return w.failed(err)
	}
	w.series.mu.Lock()
	defer w.series.mu.Unlock()
	w.series.seen, w.series.stats.Failing = p, nil
	return nil
}

func (w *Writer) failed(err error) error {
	err = fmt.Errorf("write the history of %s: %w", w.series.Of, err)
	w.series.mu.Lock()
	defer w.series.mu.Unlock()
	w.series.stats.Failing = err
	return err
}

// Gap records that changes may have been missed before the next one.
func (w *Writer) Gap(g Gap) error {
	r := w.series
	r.mu.Lock()
	g.Seq = r.next
	merged := false
	if n := len(r.gaps); n > 0 && r.gaps[n-1].Seq == g.Seq { // nothing was recorded in between
		last := r.gaps[n-1]
		g.From, g.After, g.Late, merged = last.From, last.After, g.Late && last.Late, true
		if strings.Contains(last.Reason, g.Reason) {
			g.Reason = last.Reason
		} else {
			g.Reason = last.Reason + "; " + g.Reason
		}
	}
	r.mu.Unlock()
	if err := w.writeGap(g); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if merged {
		r.gaps[len(r.gaps)-1] = g
	} else {
		r.gaps = append(r.gaps, g)
		r.stats.Gaps++
	}
	return nil
}

// GapEnds moves the end of the gap before the list that is being written, or before the
// next change, to a later resourceVersion.
func (w *Writer) GapEnds(before uint64) error {
	r := w.series
	r.mu.Lock()
	n := len(r.gaps)
	if n == 0 || r.gaps[n-1].Seq != r.seen.Since && r.gaps[n-1].Seq != r.next || r.gaps[n-1].Before >= before {
		r.mu.Unlock()
		return nil
	}
	g := r.gaps[n-1]
	r.mu.Unlock()
	g.Before, g.Late = before, false
	if err := w.writeGap(g); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps[:n-1:n-1], g)
	return nil
}

func (w *Writer) writeGap(g Gap) error {
	value, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if err := w.series.store.set(gapKey(w.series.id, g.Seq), value); err != nil {
		return w.failed(err)
	}
	return nil
}

// Append writes a batch. When it returns nil, the batch is durable. After an error nothing
// of it has been written, and the caller may try again.
func (w *Writer) Append(b Batch) error {
	r := w.series
	r.mu.Lock()
	next, seen, windows, full := r.next, r.seen, r.windows, r.full
	busy := w.cut != nil
	r.mu.Unlock()
	if b.Objects > 0 {
		w.objects = b.Objects
	}
	begun, rolled := w.roll(windows, next, seen, b, full, busy)
	if back := seen.Time.Sub(b.Time); !rolled && back > 0 {
		b.Time = seen.Time // time does not go back within a window
	}
	out := r.store.db.NewBatch()
	defer out.Close()
	current := begun
	if rolled {
		value, err := json.Marshal(begun)
		if err != nil {
			return err
		}
		if err := out.Set(windowKey(r.id, begun.First), value, nil); err != nil {
			return err
		}
	} else {
		current = windows[len(windows)-1]
	}
	record := batch{time: b.Time, end: b.ResourceVersion, relist: b.Relist, count: uint64(len(b.Changes))}
	var size uint64
	newest := map[string]int{}
	for i, v := range b.Changes {
		newest[v.Key] = i
	}
	buf := w.buf
	defer func() { w.buf = buf }()
	for i, v := range b.Changes {
		v.Time = b.Time
		record.events = append(record.events, logEvent{v.Type, v.ResourceVersion, v.Key})
		buf = appendVersion(buf[:0], v)
		size += uint64(len(v.Object))
		if err := out.Set(versionKey(r.id, current.First, v.Key, next+uint64(i)), buf, nil); err != nil {
			return err
		}
		if newest[v.Key] != i {
			continue
		}
		if v.Type == Deleted {
			if err := out.Delete(newestKey(r.id, v.Key), nil); err != nil {
				return err
			}
			continue
		}
		buf = appendNewest(buf[:0], v, false)
		if err := out.Set(newestKey(r.id, v.Key), buf, nil); err != nil {
			return err
		}
	}
	for _, v := range b.Thinned {
		buf = appendNewest(buf[:0], v, true)
		if err := out.Set(newestKey(r.id, v.Key), buf, nil); err != nil {
			return err
		}
	}
	if len(b.Changes) > 0 {
		buf = appendBatch(buf[:0], record)
		if err := out.Set(logKey(r.id, current.First, next), buf, nil); err != nil {
			return err
		}
	}
	since := seen.Since
	if b.Relist && !seen.Listing {
		since = next
	}
	seen = progress{Next: next + uint64(len(b.Changes)), Time: b.Time, ResourceVersion: b.ResourceVersion, Open: true, Listing: b.Relist}
	if b.Relist {
		seen.Since = since
	}
	value, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	if err := out.Set(progressKey(r.id), value, nil); err != nil {
		return err
	}
	if err := r.store.apply(out); err != nil {
		return w.failed(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rolled {
		r.full = false
		if n := len(windows); n > 0 && windows[n-1].First == begun.First { // it has no change yet
			windows = windows[:n-1]
		}
		r.windows = append(windows[:len(windows):len(windows)], begun)
	}
	r.next, r.seen = seen.Next, seen
	r.stats.Failing = nil
	r.stats.Versions += uint64(len(b.Changes))
	r.stats.Bytes += size
	w.checkpoint()
	return nil
}

const (
	// A window ends after this many changes for each object, so that checkpoints take
	// at most a fifth of the space, and a state is found among five versions of each
	// object or fewer.
	changesPerObject = 4
	// leastChanges is the least number of changes of a window.
	leastChanges = 20_000
	// clockTolerance is how far the clock may go back without a new window.
	clockTolerance = 2 * time.Second
)

// roll decides whether a batch begins a new window, and which. full and busy say that the
// store is full, and that a checkpoint is being made.
func (w *Writer) roll(windows []window, next uint64, seen progress, b Batch, full, busy bool) (window, bool) {
	begun := window{First: next, Begun: b.Time, ResourceVersion: seen.ResourceVersion}
	if len(windows) == 0 {
		begun.Complete = true
		if b.Relist && len(b.Changes) == 0 { // otherwise nothing is known of the time before the first list
			begun.ResourceVersion = b.ResourceVersion
		}
		return begun, true
	}
	last := windows[len(windows)-1]
	begun.Epoch = last.Epoch
	back := b.ResourceVersion < seen.ResourceVersion // the cluster was restored from a backup
	if back {
		begun.Epoch++
		begun.ResourceVersion = b.ResourceVersion
	}
	switch {
	case b.Afresh:
		begun.Complete = true
	case next == last.First && !back: // no change yet
		return last, false
	case back:
	case seen.Time.Sub(b.Time) > clockTolerance:
	case busy: // one checkpoint at a time
		return window{}, false
	case full, b.Time.Sub(last.Begun) > w.series.store.opts.For/14:
	case next-last.First > uint64(max(w.series.store.opts.leastChanges, changesPerObject*w.objects)):
	default:
		return window{}, false
	}
	return begun, true
}

// checkpoint begins to make the first checkpoint that is missing, unless one is being
// made. The caller holds series.mu.
func (w *Writer) checkpoint() {
	r := w.series
	if w.cut != nil || !w.failedAt.IsZero() && time.Since(w.failedAt) < time.Minute {
		return
	}
	for i, x := range r.windows {
		if x.Complete {
			continue
		}
		w.cut, w.pending = make(chan struct{}), make(chan struct{})
		cut, pending := w.cut, w.pending
		go func() {
			defer close(pending)
			err := r.checkpoint(i, x, cut)
			r.mu.Lock()
			defer r.mu.Unlock()
			w.cut = nil
			if w.failedAt = (time.Time{}); err != nil && !errors.Is(err, errCut) {
				w.failedAt = time.Now()
				r.store.log.Error("cannot write a checkpoint; reads of this time are slower until the next attempt", "of", r.Of.String(), "err", err)
			}
		}()
		return
	}
}

var errCut = errors.New("the writer was closed")

// checkpoint writes the checkpoint of a window.
func (r *Series) checkpoint(index int, x window, cut <-chan struct{}) error {
	state, err := r.stateBefore(x)
	if err != nil {
		return err
	}
	defer state.Close()
	db := r.store.db
	out := db.NewBatch()
	defer func() { out.Close() }()
	flush := func() error {
		if err := r.store.apply(out); err != nil {
			return err
		}
		out.Close()
		out = db.NewBatch()
		select {
		case <-cut:
			return errCut
		default:
			return nil
		}
	}
	var buf []byte
	for v, err := range state.All("", "") {
		if err != nil {
			return err
		}
		v.Type = held
		buf = appendVersion(buf[:0], v)
		if err := out.Set(versionKey(r.id, x.First, v.Key, x.First-1), buf, nil); err != nil {
			return err
		}
		if out.Len() > 1<<20 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	x.Complete = true
	value, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if err := r.store.set(windowKey(r.id, x.First), value); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	windows := append([]window(nil), r.windows...)
	for i := range windows {
		if windows[i].First == x.First {
			windows[i] = x
		}
	}
	r.windows = windows
	return nil
}
