package history

import (
	"context"
	"time"
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

// oldest returns when the oldest windows of a series ended, up to the next one that has a
// checkpoint; ok is false if there is none.
func (r *Series) oldest() (end time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.secondComplete(); i > 0 {
		return r.windows[i].Begun, true
	}
	return time.Time{}, false
}

// secondComplete returns the index of the first window but one that has a checkpoint, -1
// if there is none. The caller holds r.mu.
func (r *Series) secondComplete() int {
	for i := 1; i < len(r.windows); i++ {
		if r.windows[i].Complete {
			return i
		}
	}
	return -1
}

// dropOldest drops the oldest windows of a series, and the gaps before their end.
func (r *Series) dropOldest() error {
	r.mu.Lock()
	i := r.secondComplete()
	first, next := r.windows[0], r.windows[i]
	r.windows = r.windows[i:]
	for len(r.gaps) > 0 && r.gaps[0].Seq < next.First {
		r.gaps = r.gaps[1:]
	}
	r.mu.Unlock()
	// After an error, the window is found again when the store is next opened.
	db := r.store.db
	out := db.NewBatch()
	defer out.Close()
	data, end := dataKey(r.id, first.First), dataKey(r.id, next.First)
	if err := out.DeleteRange(data, end, nil); err != nil {
		return err
	}
	if err := out.DeleteRange(windowKey(r.id, first.First), windowKey(r.id, next.First), nil); err != nil {
		return err
	}
	if err := out.DeleteRange(gapKey(r.id, 0), gapKey(r.id, next.First), nil); err != nil {
		return err
	}
	if err := r.store.commit(out); err != nil {
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
	return db.Compact(ctx, data, end, false)
}
