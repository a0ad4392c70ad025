package access

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
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

// answer is what came of a question. Exactly one of value and err means
// something; err says that there was no answer, not that it was no.
type answer[V any] struct {
	value V
	err   error
	until time.Time
}

// cache remembers answers for as long as they may be believed, and asks each
// question once at a time, however many want to know.
type cache[V any] struct {
	options Options
	places  chan struct{} // taken by questions under way; shared by all caches of a cluster
	entries *utilcache.LRUExpireCache
	flights singleflight.Group

	asked, remembered, failed atomic.Uint64
}

func newCache[V any](options Options, places chan struct{}) *cache[V] {
	return &cache[V]{options: options, places: places, entries: utilcache.NewLRUExpireCache(options.MaxEntries)}
}

// get returns the answer to a question. ask says how long its answer may be
// believed, from the time that it was called; its context does not end with the
// caller's, because others may be waiting for the same answer.
func (c *cache[V]) get(ctx context.Context, key digest, ask func(context.Context) (V, time.Duration, error)) (answer[V], error) {
	if known, ok := c.known(key); ok {
		c.remembered.Add(1)
		return known, known.err
	}
	flight := c.flights.DoChan(string(key[:]), func() (any, error) {
		if known, ok := c.known(key); ok { // of a flight that has just landed
			return known, nil
		}
		return c.ask(context.WithoutCancel(ctx), key, ask), nil
	})
	select {
	case result := <-flight:
		if result.Err != nil { // a panic or Goexit comes back in its own way
			return answer[V]{}, result.Err
		}
		got := result.Val.(answer[V])
		return got, got.err
	case <-ctx.Done():
		return answer[V]{}, context.Cause(ctx)
	}
}

func (c *cache[V]) known(key digest) (answer[V], bool) {
	entry, ok := c.entries.Get(key)
	if !ok {
		return answer[V]{}, false
	}
	known := entry.(answer[V])
	return known, time.Now().Before(known.until)
}

func (c *cache[V]) ask(ctx context.Context, key digest, ask func(context.Context) (V, time.Duration, error)) answer[V] {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, errSilent)
	defer cancel()
	var got answer[V]
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
		c.asked.Add(1)
		asked := time.Now()
		var believed time.Duration
		got.value, believed, got.err = ask(ctx)
		got.until = asked.Add(believed)
	case <-ctx.Done():
		got.err = errCrowded
	}
	if got.err != nil {
		c.failed.Add(1)
		got.until = time.Now().Add(c.options.Fail)
	}
	if left := time.Until(got.until); left > 0 {
		c.entries.Add(key, got, left)
	}
	return got
}
