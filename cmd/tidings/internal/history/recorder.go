package history

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// Events are the events of an informer, from [informer.Informer.Events], with bookmarks.
type Events = iter.Seq[informer.Event[*codec.Raw]]

// RecordOptions configure [Store.Record].
type RecordOptions struct {
	// Thin, if not 0, is the time within which at most one version of an object is
	// kept, the last one. It is for objects that change all the time, as Leases do.
	Thin time.Duration
	// Current reports whether the informer has a watch, so that a time without
	// events is known to be one without changes.
	Current func() bool
}

const (
	// batchEvents is the most that one write has.
	batchEvents = 256
	// waiting is the number of events that wait for the disk outside of the informer's
	// own backlog.
	waiting = 64
	// seenPeriod is how often the progress is recorded while nothing changes. After an
	// unclean end, a gap begins at most this much too early.
	seenPeriod = 10 * time.Second
)

// Record writes what an informer delivers to the history of a resource, until ctx or the
// events end. It begins with the objects that exist, and records how they differ from
// the end of the history, with a gap. If the disk cannot be written, Record tries again
// until it can; what the informer has folded in the meantime is recorded as a gap.
func (s *Store) Record(ctx context.Context, of Resource, events Events, opts RecordOptions) error {
	w, err := s.Writer(of)
	if err != nil {
		return err
	}
	rec := &recorder{of: of, opts: opts, w: w, thinned: map[string]*thinned{}, log: s.log.With("cluster", of.Cluster, "resource", of.Resource)}
	err = rec.run(ctx, events)
	return errors.Join(err, w.Close(rec.current))
}

type recorder struct {
	of   Resource
	opts RecordOptions
	w    *Writer
	log  *slog.Logger

	// held is the end of the history, until the first list is complete.
	held map[string]identity
	// current is the time up to which everything has been seen.
	current time.Time
	objects int // that exist

	batch   Batch     // to be written
	bytes   int       // of its objects
	relist  bool      // the events of a list are being delivered
	listed  time.Time // when the first of them was: a list is one moment
	thinned map[string]*thinned
}

type identity struct {
	uid     string
	version uint64
}

// thinned is an object of which a version has been written lately.
type thinned struct {
	due  time.Time // of the next one
	last *Version  // waits for its time; nil if nothing does
}

func (rec *recorder) run(ctx context.Context, events Events) error {
	if err := rec.load(); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	in, done := make(chan informer.Event[*codec.Raw], waiting), make(chan struct{})
	go func() {
		defer close(done)
		defer close(in)
		for e := range events {
			select {
			case in <- e:
			case <-reading.Done():
				return
			}
		}
	}()
	defer func() {
		stop()
		<-done
	}()
	tick := time.NewTicker(seenPeriod)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-in:
			for n := 0; ok; n++ {
				if ctx.Err() != nil {
					return nil // the store of the informer is being emptied
				}
				if err := rec.handle(ctx, e); err != nil {
					return err
				}
				if n == batchEvents {
					break
				}
				select {
				case e, ok = <-in:
					continue
				default:
				}
				break
			}
			if err := rec.flush(ctx); err != nil || !ok {
				return err
			}
		case now := <-tick.C:
			rec.writeThinned(now)
			if err := rec.flush(ctx); err != nil {
				return err
			}
			if rec.held == nil && (rec.opts.Current == nil || rec.opts.Current()) {
				rec.seen(now, 0)
			}
		}
	}
}

// load reads what the end of the history has.
func (rec *recorder) load() error {
	rec.held = map[string]identity{}
	state, err := rec.w.series.newest()
	if err != nil || state == nil {
		return err
	}
	defer state.Close()
	for v, err := range state.All("", "") {
		if err != nil {
			return err
		}
		rec.held[v.Key] = identity{v.UID, v.ResourceVersion}
	}
	rec.objects = len(rec.held)
	return nil
}

// handle adds an event to the batch. The error is that of a write that was given up.
func (rec *recorder) handle(ctx context.Context, e informer.Event[*codec.Raw]) error {
	now, version := time.Now(), object.Version(e.ResourceVersion())
	if rec.held != nil {
		return rec.first(ctx, e, now, version)
	}
	if (e.Relist || e.Folded) && !rec.relist {
		if err := rec.flush(ctx); err != nil { // what came before is not part of the list
			return err
		}
		reason := "the watch was interrupted, and the resource was listed again"
		if e.Folded {
			reason = "changes came faster than they could be written"
		}
		rec.gap(Gap{From: rec.current, To: now, Before: version, Reason: reason})
		rec.relist, rec.listed = true, now
	}
	if e.Object == nil { // a bookmark
		if len(rec.batch.Changes) > 0 {
			rec.batch.ResourceVersion = max(rec.batch.ResourceVersion, version)
		}
		err := rec.flush(ctx)
		rec.relist = false
		rec.seen(now, version)
		return err
	}
	rec.add(e, now, version)
	if rec.relist && e.Resumable {
		err := rec.flush(ctx)
		rec.relist = false
		return err
	}
	return nil
}

// first handles an event of the first list. It records how the list differs from the end
// of the history.
func (rec *recorder) first(ctx context.Context, e informer.Event[*codec.Raw], now time.Time, version uint64) error {
	if last, at, clean := rec.w.Last(); !rec.relist && !last.IsZero() {
		reason := "the mirror was stopped, or did not mirror the resource"
		if !clean {
			reason = "the mirror ended unexpectedly"
		}
		rec.gap(Gap{From: last, To: now, After: at, Before: version, Reason: reason})
	}
	if !rec.relist {
		rec.relist, rec.listed = true, now
	}
	if e.Object != nil {
		key := informer.Key(e.Object)
		was, known := rec.held[key]
		delete(rec.held, key)
		switch {
		case known && was == (identity{string(e.Object.GetUID()), object.Version(e.Object.GetResourceVersion())}):
			return nil
		case known:
			e.Type = informer.Updated
		}
		rec.add(e, now, version)
		return nil
	}
	if e.Type != informer.Synced {
		return nil
	}
	if err := rec.deleteHeld(now, version); err != nil {
		return err
	}
	err := rec.flush(ctx)
	rec.held, rec.relist = nil, false
	rec.seen(now, version)
	return err
}

// deleteHeld records the deletion of objects that the first list does not have.
func (rec *recorder) deleteHeld(now time.Time, version uint64) error {
	if len(rec.held) == 0 {
		return nil
	}
	state, err := rec.w.series.newest()
	if err != nil {
		return err
	}
	defer state.Close()
	for _, key := range slices.Sorted(maps.Keys(rec.held)) {
		v, _, err := state.Get(key)
		if err != nil {
			return err
		}
		rec.append(Version{Type: Deleted, Key: key, UID: v.UID, ResourceVersion: version, Object: v.Object}, now, version)
	}
	return nil
}

// add adds a change to the batch, or keeps it until it is time.
func (rec *recorder) add(e informer.Event[*codec.Raw], now time.Time, version uint64) {
	v := Version{Key: informer.Key(e.Object), UID: string(e.Object.GetUID()), ResourceVersion: object.Version(e.Object.GetResourceVersion())}
	switch e.Type {
	case informer.Added:
		v.Type = Added
	case informer.Updated:
		v.Type = Updated
	case informer.Deleted:
		if v.Type = Deleted; e.Tombstone {
			v.ResourceVersion = version
		}
	default:
		return
	}
	var before []byte
	if e.Old != nil {
		before = e.Old.JSON()
	}
	v.Object, v.Writers = withoutManagedFields(e.Object.JSON(), before)
	if rec.opts.Thin > 0 {
		if t := rec.thinned[v.Key]; t != nil && v.Type == Updated && now.Before(t.due) {
			t.last = &v
			return
		}
		delete(rec.thinned, v.Key)
		if v.Type != Deleted {
			rec.thinned[v.Key] = &thinned{due: now.Add(rec.opts.Thin)}
		}
	}
	rec.append(v, now, version)
}

// writeThinned adds the versions to the batch whose time has come.
func (rec *recorder) writeThinned(now time.Time) {
	for key, t := range rec.thinned {
		switch {
		case now.Before(t.due):
		case t.last == nil:
			delete(rec.thinned, key)
		default:
			rec.append(*t.last, now, t.last.ResourceVersion)
			t.last, t.due = nil, now.Add(rec.opts.Thin)
		}
	}
}

// append adds a change to the batch, and begins the batch if it is the first one.
func (rec *recorder) append(v Version, now time.Time, version uint64) {
	switch v.Type {
	case Added:
		rec.objects++
	case Deleted:
		rec.objects--
	}
	switch {
	case rec.relist:
		rec.batch.Time = rec.listed
	case len(rec.batch.Changes) == 0:
		rec.batch.Time = now
	}
	rec.batch.ResourceVersion = max(rec.batch.ResourceVersion, version)
	rec.batch.Changes = append(rec.batch.Changes, v)
	rec.bytes += len(v.Object)
}

// flush writes the batch. It tries until it can, or ctx ends.
func (rec *recorder) flush(ctx context.Context) error {
	if len(rec.batch.Changes) == 0 {
		return nil
	}
	rec.batch.Relist, rec.batch.Objects = rec.relist, rec.objects
	pause := time.Second
	for {
		err := rec.w.Append(rec.batch)
		if err == nil {
			rec.current = rec.batch.Time
			rec.batch, rec.bytes = Batch{Changes: rec.batch.Changes[:0]}, 0
			return nil
		}
		if pause == time.Second {
			rec.log.Error("cannot write the history; trying again until it can be written", "err", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// seen records that there were no other changes up to now.
func (rec *recorder) seen(now time.Time, version uint64) {
	rec.current = now
	if err := rec.w.Seen(now, version); err != nil {
		rec.log.Error("cannot write the history", "err", err)
	}
}

// gap records a gap. If that fails, so does the next write, which is repeated; the gap is
// then that from the last one that succeeded.
func (rec *recorder) gap(g Gap) {
	if err := rec.w.Gap(g); err != nil {
		rec.log.Error("cannot write the history", "err", err)
	}
}
