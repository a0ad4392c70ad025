package history

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// Events are the events of an informer, with bookmarks.
type Events = <-chan informer.Event[*codec.Raw]

// Subscribe subscribes to the events of an informer at once, until ctx ends. The caller
// must call stop in the end.
func Subscribe(ctx context.Context, inf *informer.Informer[*codec.Raw], opts ...informer.SubscribeOption) (in Events, stop func()) {
	return mirror.Subscribe(ctx, inf, "history", waiting, opts...)
}

// RecordOptions configure [Store.Record].
type RecordOptions struct {
	// Thin, if not 0, is the time within which at most one version of an object is
	// kept, the last one. It is for objects that change all the time, as Leases do.
	Thin time.Duration
	// Current reports whether the informer has a watch, so that a time without
	// events is known to be one without changes.
	Current func() bool

	// began, if not nil, is called when nothing else writes the history any more.
	began func(*Writer)
	// held returns what the end of the history has; nil if it must be read. It is
	// called with the first event.
	held func() map[string]identity
}

const (
	// batchEvents is the most that one write has: of pods, less than the 1 MB up to which
	// Pebble uses the memory of a write again.
	batchEvents = 128
	// linger is how long a change waits for others, so that a disk that must sync each
	// write has few of them, and the work for them does not begin while the change is
	// being delivered to other handlers.
	linger = 20 * time.Millisecond
	// waiting is the number of events that wait for the disk outside of the informer's
	// own backlog.
	waiting = batchEvents
	// seenPeriod is how often the progress is recorded while nothing changes. After an
	// unclean end, a gap begins at most this much too early.
	seenPeriod = 10 * time.Second
	// busyPause is how often a recorder looks whether an earlier one has ended.
	busyPause = 10 * time.Millisecond
)

// Record writes what an informer delivers to the history of a resource, until ctx ends. It
// begins with the objects that exist, and records how they differ from
// the end of the history, with a gap. If the disk cannot be written, Record tries again
// until it can; what the informer has folded in the meantime is recorded as a gap.
func (s *Store) Record(ctx context.Context, of Resource, events Events, opts RecordOptions) error {
	w, err := s.Writer(of)
	for errors.Is(err, ErrBusy) { // an earlier informer of the resource is about to end
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w, err = s.Writer(of)
	}
	if err != nil {
		return err
	}
	if opts.began != nil {
		opts.began(w)
	}
	rec := &recorder{opts: opts, w: w, first: true, thinned: map[string]*thinned{}, log: s.log.With("cluster", of.Cluster, "resource", of.Resource)}
	err = rec.run(ctx, events)
	return errors.Join(err, w.Close(rec.current))
}

type recorder struct {
	opts RecordOptions
	w    *Writer
	log  *slog.Logger

	first bool                // the first list is not complete
	held  map[string]identity // what the end of the history has and the first list did not have so far
	// current is the time up to which everything has been seen, version the newest
	// resourceVersion since the last list.
	current time.Time
	version uint64
	objects int // that exist

	gathered []arrival
	batch    Batch     // to be written
	buffers  []*[]byte // that it refers to
	stalled  time.Time // up to which changes arrived before writing failed, until that is recorded
	relist   bool      // the events of a list are being delivered
	listed   time.Time // when the first of them was: a list is one moment
	thinned  map[string]*thinned
}

// arrival is an event that is to be handled.
type arrival struct {
	event informer.Event[*codec.Raw]
	at    time.Time
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

func (rec *recorder) run(ctx context.Context, in Events) error {
	tick := time.NewTicker(seenPeriod)
	defer tick.Stop()
	for {
		select {
		case e := <-in:
			for _, a := range rec.gather(ctx, e, in) {
				if err := rec.handle(ctx, a.event, a.at); err != nil {
					return err
				}
			}
			if err := rec.flush(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return rec.flush(ctx)
		case now := <-tick.C:
			rec.writeThinned(now)
			if err := rec.flush(ctx); err != nil {
				return err
			}
			if !rec.first && !rec.relist && (rec.opts.Current == nil || rec.opts.Current()) {
				rec.seen(now, 0)
			}
		}
	}
}

// gather returns an event and those that follow it soon, in a slice that the next call uses
// again. It returns none that came after the end of ctx, when the store of the informer is
// emptied.
func (rec *recorder) gather(ctx context.Context, e informer.Event[*codec.Raw], in Events) []arrival {
	enough := time.NewTimer(linger)
	defer enough.Stop()
	clear(rec.gathered)
	rec.gathered = rec.gathered[:0]
	for ctx.Err() == nil {
		rec.gathered = append(rec.gathered, arrival{e, time.Now()})
		if len(rec.gathered) == batchEvents {
			break
		}
		select {
		case e = <-in:
			continue
		case <-enough.C:
		case <-ctx.Done():
		}
		break
	}
	return rec.gathered
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
	return nil
}

// handle adds an event that has arrived to the batch. The error is that of a write that was given up.
func (rec *recorder) handle(ctx context.Context, e informer.Event[*codec.Raw], now time.Time) error {
	version := object.Version(e.ResourceVersion())
	if rec.first {
		return rec.list(ctx, e, now, version)
	}
	if (e.Relist || e.Folded) && !rec.relist {
		if err := rec.flush(ctx); err != nil { // what came before is not part of the list
			return err
		}
		reason := "the watch was interrupted, and the resource was listed again"
		if e.Folded {
			reason = "changes came faster than they could be written"
		}
		if err := rec.gap(ctx, Gap{From: rec.current, To: now, After: rec.version, Before: version, Reason: reason}); err != nil {
			return err
		}
		rec.relist, rec.listed, rec.version = true, now, version
	}
	rec.version = max(rec.version, version)
	if e.Object != nil {
		rec.add(e, now)
		if !rec.relist || !e.Resumable {
			return nil
		}
	}
	return rec.listEnds(ctx, now)
}

// listEnds writes the rest of a list, or what came before a bookmark.
func (rec *recorder) listEnds(ctx context.Context, now time.Time) error {
	err := rec.flush(ctx)
	if err == nil && rec.relist {
		err = rec.write(ctx, now, func() error { return rec.w.GapEnds(rec.version) })
	}
	rec.first, rec.held, rec.relist = false, nil, false
	rec.seen(now, rec.version)
	return errors.Join(err, rec.stallEnds(ctx))
}

// list handles an event of the first list. It records how the list differs from the end
// of the history.
func (rec *recorder) list(ctx context.Context, e informer.Event[*codec.Raw], now time.Time, version uint64) error {
	if !rec.relist {
		if err := rec.beginList(ctx, now, version); err != nil {
			return err
		}
	}
	rec.version = max(rec.version, version)
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
		rec.add(e, now)
		return nil
	}
	if e.Type != informer.Synced {
		return nil
	}
	if err := rec.deleteHeld(now); err != nil {
		return err
	}
	return rec.listEnds(ctx, now)
}

// beginList prepares for the first list, of a version, and records the gap before it.
func (rec *recorder) beginList(ctx context.Context, now time.Time, version uint64) error {
	if rec.opts.held != nil {
		rec.held = rec.opts.held()
	}
	if rec.held == nil {
		if err := rec.load(); err != nil {
			rec.log.Error("the newest state of the history cannot be read; beginning afresh with a list", "err", err)
			rec.held, rec.batch.Afresh = map[string]identity{}, true
		}
	}
	rec.objects = len(rec.held)
	rec.relist, rec.listed, rec.version = true, now, version
	last, at, clean := rec.w.Last()
	if last.IsZero() {
		return nil
	}
	reason := "the mirror was stopped, or did not mirror the resource"
	if !clean {
		reason = "the mirror ended unexpectedly"
	}
	// If the informer goes on where the history ends, nothing is missed.
	return rec.gap(ctx, Gap{From: last, To: now, After: at, Before: version, Reason: reason, Late: at == version})
}

// deleteHeld records the deletion of objects that the first list does not have.
func (rec *recorder) deleteHeld(now time.Time) error {
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
		rec.append(Version{Type: Deleted, Key: key, UID: v.UID, ResourceVersion: rec.version, Object: v.Object}, now)
	}
	return nil
}

// add adds a change to the batch, or keeps it until it is time.
func (rec *recorder) add(e informer.Event[*codec.Raw], now time.Time) {
	v := Version{Key: informer.Key(e.Object), UID: string(e.Object.GetUID()), ResourceVersion: object.Version(e.Object.GetResourceVersion())}
	switch e.Type {
	case informer.Added:
		v.Type = Added
	case informer.Updated:
		v.Type = Updated
	case informer.Deleted:
		if v.Type = Deleted; e.Tombstone {
			v.ResourceVersion = rec.version
		}
	default:
		return
	}
	t := rec.thinned[v.Key]
	early := t != nil && v.Type == Updated && now.Before(t.due)
	var whole []byte
	buffer := buffers.Get().(*[]byte)
	rec.buffers = append(rec.buffers, buffer)
	e.Object.VisitJSON(func(o []byte) {
		if early {
			whole = bytes.Clone(o)
		}
		cut := func(before []byte) {
			v.Object, v.Writers, v.Managed, v.ManagedAt = withoutManagedFields(buffer, o, before)
		}
		if e.Old != nil {
			e.Old.VisitJSON(cut)
		} else {
			cut(nil)
		}
	})
	switch {
	case rec.opts.Thin == 0:
	case early:
		last := v
		last.Object, last.Managed = bytes.Clone(v.Object), bytes.Clone(v.Managed) // they outlive the batch
		t.last = &last
		rec.begin(now)
		v.Object = whole
		rec.batch.Thinned = append(rec.batch.Thinned, v)
		return
	case v.Type == Deleted:
		delete(rec.thinned, v.Key)
		rec.batch.Thinned = slices.DeleteFunc(rec.batch.Thinned, func(t Version) bool { return t.Key == v.Key })
	default:
		rec.thinned[v.Key] = &thinned{due: now.Add(rec.opts.Thin)}
	}
	rec.append(v, now)
}

// writeThinned adds the versions to the batch whose time has come.
func (rec *recorder) writeThinned(now time.Time) {
	for key, t := range rec.thinned {
		switch {
		case now.Before(t.due):
		case t.last == nil:
			delete(rec.thinned, key)
		default:
			rec.append(*t.last, now)
			t.last, t.due = nil, now.Add(rec.opts.Thin)
		}
	}
}

// append adds a change to the batch.
func (rec *recorder) append(v Version, now time.Time) {
	switch v.Type {
	case Added:
		rec.objects++
	case Deleted:
		rec.objects--
	}
	rec.begin(now)
	rec.batch.Changes = append(rec.batch.Changes, v)
}

// begin begins the batch, unless it has begun.
func (rec *recorder) begin(now time.Time) {
	switch {
	case rec.relist:
		rec.batch.Time = rec.listed
	case len(rec.batch.Changes)+len(rec.batch.Thinned) == 0:
		rec.batch.Time = now
	}
}

// flush writes the batch. It tries until it can, or ctx ends.
func (rec *recorder) flush(ctx context.Context) error {
	if len(rec.batch.Changes)+len(rec.batch.Thinned) == 0 {
		// A list that found nothing is written if the history begins with it, or if
		// versions have gone back, so that the next change is not taken for one of the
		// versions before.
		_, seen := rec.w.series.Seen()
		if !rec.batch.Afresh && (!rec.relist || rec.version >= seen && seen != 0) {
			return nil
		}
		rec.begin(rec.listed)
	}
	rec.batch.Relist, rec.batch.Objects, rec.batch.ResourceVersion = rec.relist, rec.objects, rec.version
	if err := rec.write(ctx, rec.batch.Time, func() error { return rec.w.Append(rec.batch) }); err != nil {
		return err
	}
	rec.current = rec.batch.Time
	rec.batch = Batch{Changes: rec.batch.Changes[:0], Thinned: rec.batch.Thinned[:0]}
	for _, b := range rec.buffers {
		buffers.Put(b)
	}
	rec.buffers = rec.buffers[:0]
	return rec.stallEnds(ctx)
}

// write writes what arrived at a time. It tries until it can, or ctx ends.
func (rec *recorder) write(ctx context.Context, arrived time.Time, do func() error) error {
	pause := time.Second
	for {
		err := do()
		if err == nil {
			return nil
		}
		if rec.stalled.IsZero() {
			rec.stalled = arrived
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

// stallEnds records the time in which nothing could be written. What arrived in it is
// written after it, or was folded. In a list, it waits for the end: a list is one moment.
func (rec *recorder) stallEnds(ctx context.Context) error {
	if rec.stalled.IsZero() || rec.relist {
		return nil
	}
	g := Gap{From: rec.stalled, To: time.Now(), After: rec.version, Before: rec.version, Reason: "the history could not be written"}
	if err := rec.gap(ctx, g); err != nil {
		return err
	}
	rec.stalled = time.Time{}
	return nil
}

// seen records that there were no other changes up to now.
func (rec *recorder) seen(now time.Time, version uint64) {
	rec.current = now
	if err := rec.w.Seen(now, version); err != nil {
		rec.log.Error("cannot write the history", "err", err)
	}
}

// gap records a gap. It tries until it can, or ctx ends.
func (rec *recorder) gap(ctx context.Context, g Gap) error {
	return rec.write(ctx, g.To, func() error { return rec.w.Gap(g) })
}
