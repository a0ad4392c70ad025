package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/internal/flight"
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
	places, strangers *places
	memories          *shares[*memory[V]]
	flights           flight.Group[asking, answer[V]]
	silent            atomic.Bool // the last question sent was not answered

	asked, remembered, failed, graced atomic.Uint64
}

func newCache[V any](options Options, isYes func(V) bool, owner func(V) string, places, strangers *places) *cache[V] {
	return &cache[V]{
		options: options, isYes: isYes, owner: owner, places: places, strangers: strangers,
		memories: newShares[*memory[V]](options.MaxEntries),
	}
}

// asking is what a question under way is found by: with the payer, because it waits
// for its place behind others of the same.
type asking struct {
	key   digest
	payer string
}

// question is sent to the cluster. It says how long its answer may be believed,
// from the time that it was called. Its context does not end with the caller's,
// because others may be waiting for the same answer.
type question[V any] func(context.Context) (V, time.Duration, error)

// get returns the answer to a question, which takes a place of the payer's.
//
// A yes from before is the answer for [Options.Grace] after its time if the
// cluster cannot be asked. That a question has to wait for its place does not
// mean that: patience begins when it is sent.
func (c *cache[V]) get(ctx context.Context, key digest, payer string, ask question[V]) (answer[V], error) {
	m, _ := c.memories.get(key)
	if known, ok := m.believed(); ok {
		c.remembered.Add(1)
		return c.note(known)
	}
	f := c.flights.Join(ctx, asking{key, payer}, func(ctx context.Context, sent func()) answer[V] { return c.fly(ctx, key, payer, ask, sent) })
	defer c.flights.Leave(f)
	wait, sent := patience, f.Sent()
	if c.silent.Load() {
		wait = impatience
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	if _, ok := c.spare(m); !ok {
		timer.Stop()
	}
	for {
		select {
		case <-f.Landed():
			return c.note(f.Answer())
		case <-sent:
			sent = nil
			if _, ok := c.spare(m); ok {
				timer.Reset(wait)
			}
		case <-timer.C:
			if sent == nil && wait == patience {
				c.silent.Store(true)
			}
			if c.silent.Load() {
				if last, ok := c.last(key, m); ok {
					return c.note(last)
				}
				continue
			}
			wait = patience // for other questions are answered
			if sent == nil {
				timer.Reset(patience)
			} else {
				timer.Reset(impatience)
			}
		case <-ctx.Done():
			return answer[V]{}, context.Cause(ctx)
		}
	}
}

// last is the answer to a question that the cluster does not answer: what has come
// meanwhile, or else the last yes if no no has come since. Others need not wait for
// a moment then.
func (c *cache[V]) last(key digest, m *memory[V]) (out answer[V], ok bool) {
	if m == nil || m.yes.until.IsZero() {
		return out, false
	}
	c.memories.put(key, c.owner(m.yes.value), func(now *memory[V], _ bool) (*memory[V], time.Time, bool) {
		if out, ok = now.believed(); ok {
			return nil, time.Time{}, false
		}
		if out, ok = c.spare(now); !ok {
			return nil, time.Time{}, false
		}
		return &memory[V]{out, now.yes}, c.forget(out, now.yes), true
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

// lastYes is the value of the last yes, or none.
func (c *cache[V]) lastYes(key digest) (value V) {
	if m, _ := c.memories.get(key); m != nil {
		value = m.yes.value
	}
	return value
}

// fly finds out the answer to a question. The context ends when it is withdrawn,
// which it cannot be once it has been sent.
func (c *cache[V]) fly(ctx context.Context, key digest, payer string, ask question[V], sent func()) (got answer[V]) {
	m, _ := c.memories.get(key)
	if known, ok := m.believed(); ok && !known.grace { // of a flight that has just landed
		return known
	}
	places := c.strangers
	if m != nil && !m.yes.until.IsZero() {
		places, payer = c.places, cmp.Or(payer, c.owner(m.yes.value))
	}
	_, graceful := c.spare(m)
	waiting, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	if !places.take(waiting, payer, graceful && c.silent.Load()) {
		got.err = errCrowded
		if ctx.Err() != nil {
			return got // withdrawn
		}
		c.failed.Add(1)
		if c.silent.Load() { // those under way are not answered either
			if last, ok := c.last(key, m); ok {
				return last
			}
		}
		return got
	}
	defer places.giveBack(payer)
	sent()
	return c.ask(context.WithoutCancel(ctx), key, m, ask)
}

// ask sends a question, and remembers the answer.
func (c *cache[V]) ask(ctx context.Context, key digest, m *memory[V], ask question[V]) (got answer[V]) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, errSilent)
	defer cancel()
	c.asked.Add(1)
	asked := time.Now()
	var believed time.Duration
	got.value, believed, got.err = ask(ctx)
	c.silent.Store(isSilence(got.err))
	if got.err == nil {
		got.until = asked.Add(believed)
		var yes answer[V]
		if c.isYes(got.value) {
			yes = got
		}
		c.remember(key, c.owner(got.value), func(*memory[V]) *memory[V] { return &memory[V]{got, yes} })
		return got
	}
	c.failed.Add(1)
	if isSilence(got.err) {
		if last, ok := c.last(key, m); ok {
			return last
		}
	}
	got.until = time.Now().Add(c.options.Fail)
	owner := ""
	if m != nil && !m.yes.until.IsZero() {
		owner = c.owner(m.yes.value)
	}
	c.remember(key, owner, func(now *memory[V]) *memory[V] {
		if now == nil {
			return &memory[V]{answer: got}
		}
		if _, ok := now.believed(); ok { // an answer came meanwhile
			return now
		}
		return &memory[V]{got, now.yes}
	})
	return got
}

func (c *cache[V]) remember(key digest, owner string, change func(now *memory[V]) *memory[V]) {
	c.memories.put(key, owner, func(now *memory[V], _ bool) (*memory[V], time.Time, bool) {
		next := change(now)
		forget := c.forget(next.answer, next.yes)
		return next, forget, next != now && time.Now().Before(forget)
	})
}
