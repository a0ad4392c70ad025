package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/flight"
)

// digest is the key of a cached result. It covers everything that the result
// depends on and reveals nothing of it.
type digest [sha256.Size]byte

// digestOf returns different digests for different lists of parts: each part is
// preceded by its length.
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
	// graceDelay is how long a caller waits for a review before it gets the last
	// positive result. It is graceDelayDown while the cluster is unresponsive, which
	// is long enough to notice that it answers again.
	graceDelay, graceDelayDown = 2 * time.Second, 100 * time.Millisecond
	// verifiedTTL is how long a positive result is kept at least after it expires,
	// so that its credentials still count as verified.
	verifiedTTL = time.Minute
)

// result is the outcome of a review. Either value or err is set; err means that
// there was no answer, not that the answer was negative.
type result[V any] struct {
	value V
	err   error
	until time.Time
	grace bool // the last positive result, used because the cluster is unavailable
}

// entry is what the cache holds for one key.
type entry[V any] struct {
	result[V]           // the newest
	positive  result[V] // the last positive one, unless a negative one came since
}

// cache remembers the results of reviews until they expire. Callers with the same
// key share one review in flight.
type cache[V any] struct {
	options    Options
	isPositive func(V) bool
	ownerOf    func(V) string // the owner that a cached result counts against
	// A review in flight holds a seat. Reviews of unverified credentials, which have
	// no positive result yet, have seats of their own.
	seats, unverifiedSeats *seatPool
	entries                *fairLRU[*entry[V]]
	calls                  flight.Group[callKey, result[V]]
	unresponsive           atomic.Bool // the last review got no answer

	sent, cached, failed, graced atomic.Uint64
}

func newCache[V any](options Options, isPositive func(V) bool, ownerOf func(V) string, seats, unverifiedSeats *seatPool) *cache[V] {
	return &cache[V]{
		options: options, isPositive: isPositive, ownerOf: ownerOf, seats: seats, unverifiedSeats: unverifiedSeats,
		entries: newFairLRU[*entry[V]](options.MaxEntries),
	}
}

// callKey identifies a review in flight. It includes the owner because the review
// waits for a seat behind others of that owner.
type callKey struct {
	key   digest
	owner string
}

// reviewFunc asks the cluster. It returns how long the result is valid, counted
// from the call. Its context does not end with the caller's, because others may be
// waiting for the same result.
type reviewFunc[V any] func(context.Context) (V, time.Duration, error)

// get returns the cached result for a key or runs a review, in a seat of the owner.
//
// While the cluster is unavailable, get returns the last positive result for up to
// [Options.Grace] after it has expired. Waiting for a seat does not count as
// unavailable: the delay starts when the review is sent.
func (c *cache[V]) get(ctx context.Context, key digest, owner string, review reviewFunc[V]) (result[V], error) {
	e, _ := c.entries.get(key)
	if r, ok := e.fresh(); ok {
		c.cached.Add(1)
		return c.count(r)
	}
	call := c.calls.Join(ctx, callKey{key, owner}, func(ctx context.Context, sent func()) result[V] { return c.run(ctx, key, owner, review, sent) })
	defer c.calls.Leave(call)
	delay, sent := graceDelay, call.Sent()
	if c.unresponsive.Load() {
		delay = graceDelayDown
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	if _, ok := c.graceResult(e); !ok {
		timer.Stop()
	}
	for {
		select {
		case <-call.Done():
			return c.count(call.Result())
		case <-sent:
			sent = nil
			if _, ok := c.graceResult(e); ok {
				timer.Reset(delay)
			}
		case <-timer.C:
			if sent == nil && delay == graceDelay {
				c.unresponsive.Store(true)
			}
			if c.unresponsive.Load() {
				if r, ok := c.useGrace(key, e); ok {
					return c.count(r)
				}
				continue
			}
			delay = graceDelay // other reviews are answered
			if sent == nil {
				timer.Reset(graceDelay)
			} else {
				timer.Reset(graceDelayDown)
			}
		case <-ctx.Done():
			return result[V]{}, context.Cause(ctx)
		}
	}
}

// useGrace returns a result for a review that the cluster does not answer: one that
// arrived meanwhile, or else the last positive one, unless a negative one came
// since. It caches the latter for a moment, so that other callers need not wait.
func (c *cache[V]) useGrace(key digest, e *entry[V]) (out result[V], ok bool) {
	if !e.hasPositive() {
		return out, false
	}
	c.entries.put(key, c.ownerOf(e.positive.value), func(now *entry[V], _ bool) (*entry[V], time.Time, bool) {
		if out, ok = now.fresh(); ok {
			return nil, time.Time{}, false
		}
		if out, ok = c.graceResult(now); !ok {
			return nil, time.Time{}, false
		}
		return &entry[V]{out, now.positive}, c.evictAt(out, now.positive), true
	})
	return out, ok
}

// count counts r if it is returned by grace.
func (c *cache[V]) count(r result[V]) (result[V], error) {
	if r.grace {
		c.graced.Add(1)
	}
	return r, r.err
}

// fresh returns the newest result if it has not expired.
func (e *entry[V]) fresh() (r result[V], ok bool) {
	if e == nil || !time.Now().Before(e.until) {
		return r, false
	}
	return e.result, true
}

func (e *entry[V]) hasPositive() bool { return e != nil && !e.positive.until.IsZero() }

// graceResult returns the last positive result if it may still be used while the
// cluster is unavailable.
func (c *cache[V]) graceResult(e *entry[V]) (r result[V], ok bool) {
	now := time.Now()
	if !e.hasPositive() || c.options.Grace < 0 {
		return r, false
	}
	end := e.positive.until.Add(c.options.Grace)
	until := earlier(end, now.Add(c.options.ErrorTTL))
	return result[V]{value: e.positive.value, until: until, grace: true}, now.Before(end)
}

// evictAt returns when an entry is no longer of use.
func (c *cache[V]) evictAt(newest, positive result[V]) time.Time {
	until := newest.until
	if end := positive.until.Add(max(c.options.Grace, verifiedTTL)); !positive.until.IsZero() && end.After(until) {
		until = end
	}
	return until
}

// credentialStatus is what the cache knows of credentials.
type credentialStatus int

const (
	unverified credentialStatus = iota // nothing
	rejected                           // a negative result that has not expired
	verified                           // a positive result, perhaps expired
)

// status returns what the cache knows. It sends no review.
func (c *cache[V]) status(key digest) credentialStatus {
	e, _ := c.entries.get(key)
	switch r, ok := e.fresh(); {
	case e.hasPositive():
		return verified
	case ok && r.err == nil:
		return rejected
	}
	return unverified
}

// lastPositive returns the value of the last positive result, or the zero value.
func (c *cache[V]) lastPositive(key digest) (value V) {
	if e, _ := c.entries.get(key); e != nil {
		value = e.positive.value
	}
	return value
}

// run waits for a seat, sends a review and caches its result. ctx ends if nobody
// waits any more; a review that has been sent goes on nevertheless.
func (c *cache[V]) run(ctx context.Context, key digest, owner string, review reviewFunc[V], sent func()) (got result[V]) {
	e, _ := c.entries.get(key)
	if r, ok := e.fresh(); ok && !r.grace { // from a call that has just ended
		return r
	}
	seats := c.unverifiedSeats
	if e.hasPositive() {
		seats, owner = c.seats, cmp.Or(owner, c.ownerOf(e.positive.value))
	}
	_, hasGrace := c.graceResult(e)
	waitCtx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	if !seats.acquire(waitCtx, owner, hasGrace && c.unresponsive.Load()) {
		got.err = errNoSeat
		if ctx.Err() != nil {
			return got // nobody waits
		}
		c.failed.Add(1)
		if c.unresponsive.Load() { // the reviews in flight are not answered either
			if r, ok := c.useGrace(key, e); ok {
				return r
			}
		}
		return got
	}
	defer seats.release(owner)
	sent()
	return c.send(context.WithoutCancel(ctx), key, e, review)
}

// send sends a review and caches the result.
func (c *cache[V]) send(ctx context.Context, key digest, e *entry[V], review reviewFunc[V]) (got result[V]) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, errNoAnswer)
	defer cancel()
	c.sent.Add(1)
	begin := time.Now()
	var ttl time.Duration
	got.value, ttl, got.err = review(ctx)
	c.unresponsive.Store(isUnavailable(got.err))
	if got.err == nil {
		got.until = begin.Add(ttl)
		var positive result[V]
		if c.isPositive(got.value) {
			positive = got
		}
		c.store(key, c.ownerOf(got.value), func(*entry[V]) *entry[V] { return &entry[V]{got, positive} })
		return got
	}
	c.failed.Add(1)
	if isUnavailable(got.err) {
		if r, ok := c.useGrace(key, e); ok {
			return r
		}
	}
	got.until = time.Now().Add(c.options.ErrorTTL)
	owner := ""
	if e.hasPositive() {
		owner = c.ownerOf(e.positive.value)
	}
	c.store(key, owner, func(now *entry[V]) *entry[V] {
		if now == nil {
			return &entry[V]{result: got}
		}
		if _, ok := now.fresh(); ok { // a result arrived meanwhile
			return now
		}
		return &entry[V]{got, now.positive}
	})
	return got
}

// store replaces the entry of a key by what change makes of it.
func (c *cache[V]) store(key digest, owner string, change func(now *entry[V]) *entry[V]) {
	c.entries.put(key, owner, func(now *entry[V], _ bool) (*entry[V], time.Time, bool) {
		next := change(now)
		evictAt := c.evictAt(next.result, next.positive)
		return next, evictAt, next != now && time.Now().Before(evictAt)
	})
}
