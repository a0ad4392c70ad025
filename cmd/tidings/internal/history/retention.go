package history

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// retentionPeriod is how often old windows are looked for.
const retentionPeriod = time.Minute

// retain drops old windows until the store is closed.
func (s *Store) retain() {
	tick := time.NewTicker(retentionPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := s.Retain(time.Now()); err != nil {
				s.log.Error("cannot drop old history; trying again", "err", err, "in", retentionPeriod)
			}
		case <-s.stop:
			return
		}
	}
}

// Retain drops what is older than [Options.For], and the oldest windows while the store
// takes more than [Options.Size]. The newest window of a series stays. The store calls it
// once a minute.
func (s *Store) Retain(now time.Time) error {
	for _, r := range s.All() {
		for {
			if end, ok := r.oldest(); !ok || now.Sub(end) < s.opts.For {
				break
			}
			if err := r.dropOldest(); err != nil {
				return err
			}
		}
	}
	for {
		// Not the disk usage, which includes files that are about to be deleted.
		used, err := s.db.EstimateDiskUsage([]byte{0}, []byte{0xff})
		if err != nil || used <= uint64(s.opts.Size) {
			return err
		}
		var oldest *Series
		var first time.Time
		for _, r := range s.All() {
			if end, ok := r.oldest(); ok && (oldest == nil || end.Before(first)) {
				oldest, first = r, end
			}
		}
		if oldest == nil { // one window of each series is left: end them, so that they can be dropped
			for _, r := range s.All() {
				r.mu.Lock()
				r.full = true
				r.mu.Unlock()
			}
			return nil
		}
		if err := oldest.dropOldest(); err != nil {
			return err
		}
	}
}

// oldest returns when the oldest window of a series ended; ok is false if it cannot be
// dropped, because it is the newest one, or the next one has no checkpoint yet.
func (r *Series) oldest() (end time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.windows) < 2 || !r.windows[1].Complete {
		return time.Time{}, false
	}
	return r.windows[1].Begun, true
}

// dropOldest drops the oldest window of a series, and the gaps before its end.
func (r *Series) dropOldest() error {
	r.mu.Lock()
	w, next := r.windows[0], r.windows[1]
	r.windows = r.windows[1:]
	for len(r.gaps) > 0 && r.gaps[0].Seq < next.First {
		r.gaps = r.gaps[1:]
	}
	r.mu.Unlock()
	// After an error, the window is found again when the store is next opened.
	db := r.store.db
	out := db.NewBatch()
	defer out.Close()
	data := dataKey(r.id, w.First)
	if err := out.DeleteRange(data, after(data), nil); err != nil {
		return err
	}
	if err := out.Delete(windowKey(r.id, w.First), nil); err != nil {
		return err
	}
	if err := out.DeleteRange(gapKey(r.id, 0), gapKey(r.id, next.First), nil); err != nil {
		return err
	}
	if err := db.Apply(out, pebble.Sync); err != nil {
		return err
	}
	// Reclaim the space now: the engine would do so when it next compacts the range.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-r.store.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return db.Compact(ctx, data, after(data), false)
}
