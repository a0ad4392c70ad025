package livetable

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/informer"
)

// made is an event with the row that it makes.
type made struct {
	read.Event
	key string
	now *row // nil: the object is gone
	err error
}

// bunch is how many objects of the beginning are made into rows at a time, by all CPUs.
const bunch = 512

// soon is how long windows are not woken for a change that others may follow at once.
const soon = 5 * time.Millisecond

// fill follows events. Those of the beginning come without a pause, so they are taken
// together; those after it one at a time. A table that has caught up pauses for as long as
// a window does after each change that it had to wait for: to take the changes of that
// time together, and to wake all windows at the same time, costs a fraction of what it
// costs to be woken for each.
func (t *liveTable) fill(events read.Events) error {
	waiting := make([]made, 0, bunch)
	filled := false
	late := time.AfterFunc(time.Hour, t.notify)
	defer late.Stop()
	ready, notified := time.Now(), time.Now()
	for e, err := range events {
		if err != nil {
			return err
		}
		caughtUp := time.Since(ready) > time.Millisecond // the event was waited for
		waiting = append(waiting, made{Event: e})
		if filled = filled || e.Type == read.Synced; !filled && len(waiting) < bunch {
			continue
		}
		if err := t.take(waiting); err != nil {
			return err
		}
		waiting = waiting[:0]
		if ready = time.Now(); filled && !caughtUp && ready.Sub(notified) < soon {
			late.Reset(soon)
			continue
		}
		late.Stop()
		t.notify()
		if filled && caughtUp {
			select {
			case <-time.After(interval):
			case <-t.hurry:
			case <-t.ctx.Done():
			}
			ready = time.Now()
		}
		notified = ready
	}
	return nil
}

// fillPast lists the objects of the query's moment, and keeps them until nobody looks.
func (t *liveTable) fillPast() error {
	waiting := make([]made, 0, bunch)
	headed := sync.OnceFunc(func() { close(t.headed) })
	meta, err := t.tables.reader.List(t.ctx, t.query, func(o *read.Object) error {
		headed()
		if waiting = append(waiting, made{Event: read.Event{Type: read.Added, Object: o}}); len(waiting) < bunch {
			return nil
		}
		err := t.take(waiting)
		waiting = waiting[:0]
		t.notify()
		return err
	})
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.past = meta.Past
	t.mu.Unlock()
	headed()
	if err := t.take(append(waiting, made{Event: read.Event{Type: read.Synced, ResourceVersion: meta.ResourceVersion}})); err != nil {
		return err
	}
	t.notify()
	<-t.ctx.Done()
	return nil
}

// take makes the rows of events and applies them.
func (t *liveTable) take(events []made) error {
	t.makeRows(events)
	t.mu.Lock()
	filling := !t.synced
	for _, e := range events {
		if e.err != nil {
			t.mu.Unlock()
			return fmt.Errorf("make the row of %s of %s: %w", e.key, t.query, e.err)
		}
		t.apply(e)
	}
	t.mu.Unlock()
	if t.taken += len(events); t.taken >= bunch || events[len(events)-1].Type == read.Synced {
		t.taken = 0
		if err := t.account(); err != nil && filling {
			return err
		}
	}
	return nil
}

// makeRows makes the rows of events, on all CPUs if there are many.
func (t *liveTable) makeRows(events []made) {
	const share = 32 // fewer are not worth a goroutine
	workers := min(runtime.GOMAXPROCS(0), (len(events)+share-1)/share)
	var running sync.WaitGroup
	for i := range workers {
		part := events[i*len(events)/workers : (i+1)*len(events)/workers]
		work := func() {
			for i := range part {
				part[i].key, part[i].now, part[i].err = t.rowOf(part[i].Event)
			}
		}
		if i == workers-1 {
			work()
		} else {
			running.Go(work)
		}
	}
	running.Wait()
}

// rowOf makes the row of an event.
func (t *liveTable) rowOf(e read.Event) (key string, now *row, err error) {
	if e.Object == nil {
		return "", nil, nil
	}
	key = informer.Key(e.Object)
	if e.Type != read.Deleted {
		e.Object.VisitJSON(func(content []byte) { now, err = t.newRow(key, e.Object.GetNamespace(), content) })
	}
	return key, now, err
}

// apply applies an event to the rows and to all orders of them. t.mu is held.
func (t *liveTable) apply(e made) {
	if e.ResourceVersion != "" {
		t.version = e.ResourceVersion
	}
	switch {
	case e.Type == read.Synced:
		t.synced = true
	case e.Object != nil:
		old := t.rows[e.key]
		if old != nil && e.now != nil && old.packed == e.now.packed {
			return
		}
		if old != nil {
			delete(t.rows, e.key)
			t.size -= old.size()
		}
		if e.now != nil {
			t.rows[e.key] = e.now
			t.size += e.now.size()
		}
		for _, o := range t.orders {
			o.replace(old, e.now)
		}
	}
}
