package access

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// digest is what an answer is found by. It stands for everything that the
// answer depends on, and tells nothing of it.
type digest [sha256.Size]byte

// digestOf is different for different parts: each is preceded by its length.
func digestOf(parts ...string) digest {
	h := sha256.New()
	var size [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		_, _ = h.Write(size[:])
		_, _ = h.Write([]byte(part))
	}
	return digest(h.Sum(nil))
}

const (
	// patience is how long somebody waits for an answer who could be given the
	// last yes, and impatience the same while the last question of any kind has
	// not been answered: long enough for a cluster that answers again.
	patience, impatience = 2 * time.Second, 100 * time.Millisecond
	// acquainted is how long a yes is remembered at least after its time: its
	// caller is no stranger.
	acquainted = time.Minute
)

// answer is what came of a question. Exactly one of value and err means
// something; err says that there was no answer, not that it was no.
type answer[V any] struct {
	value V
	err   error
	until time.Time
	grace bool // it is the last yes, because the cluster cannot be asked
}

// memory is what is remembered of a question.
type memory[V any] struct {
	answer[V]           // the newest
	yes       answer[V] // the last yes, if no no has come since
}

// cache remembers answers for as long as they may be believed, and asks each
// question once at a time, however many want to know.
type cache[V any] struct {
	options Options
	isYes   func(V) bool
	owner   func(V) string // in whose share an answer is remembered
	// Places are taken by questions under way. Those about strangers, which have
	// no yes from before, are of their own.
	places, strangers chan struct{}
	memories          *shares[*memory[V]]
	flights           singleflight.Group
	silent            atomic.Bool // the last question was not answered

	asked, remembered, failed, graced atomic.Uint64
}

func newCache[V any](options Options, isYes func(V) bool, owner func(V) string, places, strangers chan struct{}) *cache[V] {
	return &cache[V]{options: options, isYes: isYes, owner: owner, places: places, strangers: strangers, memories: newShares[*memory[V]](options.MaxEntries)}
}

// get returns the answer to a question. ask says how long its answer may be
// believed, from the time that it was called; its context does not end with the
// caller's, because others may be waiting for the same answer.
//
// A yes from before is the answer for [Options.Grace] after its time if the
// cluster cannot be asked.
func (c *cache[V]) get(ctx context.Context, key digest, ask func(context.Context) (V, time.Duration, error)) (answer[V], error) {
	m, _ := c.memories.get(key)
	if known, ok := m.believed(); ok {
		c.remembered.Add(1)
		return c.note(known)
	}
	flight := c.flights.DoChan(string(key[:]), func() (any, error) {
		m, _ := c.memories.get(key)
		if known, ok := m.believed(); ok && !known.grace { // of a flight that has just landed
			return known, nil
		}
		return c.ask(context.WithoutCancel(ctx), key, m, ask), nil
	})
	var late <-chan time.Time
	if _, ok := c.spare(m); ok {
		wait := patience
		if c.silent.Load() {
			wait = impatience
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case result := <-flight:
			if result.Err != nil { // a panic or Goexit comes back in its own way
				return answer[V]{}, result.Err
			}
			return c.note(result.Val.(answer[V]))
		case <-late:
			c.silent.Store(true)
			if spare, ok := c.late(key, m); ok {
				return c.note(spare)
			}
		case <-ctx.Done():
			return answer[V]{}, context.Cause(ctx)
		}
	}
}

// late is the answer to a question that is still under way: the last yes, unless
// something has come meanwhile. Others need not wait for a moment then.
func (c *cache[V]) late(key digest, m *memory[V]) (out answer[V], ok bool) {
	out, ok = c.spare(m)
	c.memories.put(key, c.owner(m.yes.value), func(now *memory[V], _ bool) (*memory[V], time.Time, bool) {
		if came, believed := now.believed(); believed {
			out, ok = came, true
			return nil, time.Time{}, false
		}
		return &memory[V]{out, m.yes}, c.forget(out, m.yes), ok && now == m
	})
	return out, ok
}

// note counts an answer that was given by grace.
func (c *cache[V]) note(a answer[V]) (answer[V], error) {
	if a.grace {
		c.graced.Add(1)
	}
	return a, a.err
}

// believed is the newest answer, if its time has not run out.
func (m *memory[V]) believed() (a answer[V], ok bool) {
	if m == nil || !time.Now().Before(m.until) {
		return a, false
	}
	return m.answer, true
}

// spare is the last yes, if it may be used once more because the cluster cannot
// be asked.
func (c *cache[V]) spare(m *memory[V]) (a answer[V], ok bool) {
	now := time.Now()
	if m == nil || m.yes.until.IsZero() || c.options.Grace < 0 {
		return a, false
	}
	end := m.yes.until.Add(c.options.Grace)
	again := now.Add(c.options.Fail)
	if end.Before(again) {
		again = end
	}
	return answer[V]{value: m.yes.value, until: again, grace: true}, now.Before(end)
}

// forget says when a memory is of no use any more.
func (c *cache[V]) forget(newest, yes answer[V]) time.Time {
	until := newest.until
	if end := yes.until.Add(max(c.options.Grace, acquainted)); !yes.until.IsZero() && end.After(until) {
		until = end
	}
	return until
}

// standing is what is remembered of credentials.
type standing int

const (
	stranger standing = iota // nothing
	refused                  // a no that is still believed
	known                    // a yes, though its time may have run out
)

// standing says what is remembered, and asks nothing.
func (c *cache[V]) standing(key digest) standing {
	m, _ := c.memories.get(key)
	switch now, ok := m.believed(); {
	case m == nil:
		return stranger
	case !m.yes.until.IsZero():
		return known
	case ok && now.err == nil:
		return refused
	}
	return stranger
}

func (c *cache[V]) ask(ctx context.Context, key digest, m *memory[V], ask func(context.Context) (V, time.Duration, error)) answer[V] {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, errSilent)
	defer cancel()
	places := c.strangers
	var got, yes answer[V]
	if m != nil && !m.yes.until.IsZero() {
		places, yes = c.places, m.yes
	}
	_, graceful := c.spare(m)
	if c.take(ctx, places, graceful && c.silent.Load()) {
		defer func() { <-places }()
		c.asked.Add(1)
		asked := time.Now()
		var believed time.Duration
		got.value, believed, got.err = ask(ctx)
		got.until = asked.Add(believed)
		c.silent.Store(isSilence(got.err))
	} else {
		got.err = errCrowded
	}
	switch {
	case got.err != nil:
		c.failed.Add(1)
		got.until = time.Now().Add(c.options.Fail)
		if spare, ok := c.spare(m); ok && isSilence(got.err) {
			got = spare
		}
	case c.isYes(got.value):
		yes = got
	default:
		yes = answer[V]{}
	}
	owner := ""
	if got.err == nil {
		owner = c.owner(got.value)
	} else if !yes.until.IsZero() {
		owner = c.owner(yes.value)
	}
	if forget := c.forget(got, yes); time.Now().Before(forget) {
		c.memories.put(key, owner, func(*memory[V], bool) (*memory[V], time.Time, bool) { return &memory[V]{got, yes}, forget, true })
	}
	return got
}

// take takes a place, and waits for one unless that is not worth it.
func (c *cache[V]) take(ctx context.Context, places chan struct{}, atOnce bool) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	if atOnce {
		return false
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
