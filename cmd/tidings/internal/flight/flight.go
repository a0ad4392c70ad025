// Package flight runs one call at a time for each key and shares its result with
// all who wait for it. Unlike golang.org/x/sync/singleflight, it cancels a call that
// nobody waits for any more, unless its request has been sent.
package flight

import (
	"context"
	"sync"
)

// Group holds the calls in flight. The zero value is ready to use.
type Group[K comparable, V any] struct {
	mu    sync.Mutex
	calls map[K]*Call[K, V]
}

// Call is a call in flight.
type Call[K comparable, V any] struct {
	key     K
	waiters int // guarded by Group.mu
	cancel  context.CancelFunc
	sent    chan struct{}
	done    chan struct{}
	result  V
}

// Sent is closed when the request of the call has been sent.
func (c *Call[K, V]) Sent() <-chan struct{} { return c.sent }

// Done is closed when the call has a result.
func (c *Call[K, V]) Done() <-chan struct{} { return c.done }

// Result returns the result of a call that is done.
func (c *Call[K, V]) Result() V { return c.result }

// Join returns the call in flight for key or, if there is none, starts one that runs
// do. Each Join needs a [Group.Leave].
//
// do calls sent when it sends its request. Its context has the values of ctx, and is
// canceled when the last waiter leaves. That may happen while the request is being
// sent, so the request needs a context without this cancellation.
func (g *Group[K, V]) Join(ctx context.Context, key K, do func(ctx context.Context, sent func()) V) *Call[K, V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		c.waiters++
		return c
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &Call[K, V]{key: key, waiters: 1, cancel: cancel, sent: make(chan struct{}), done: make(chan struct{})}
	if g.calls == nil {
		g.calls = map[K]*Call[K, V]{}
	}
	g.calls[key] = c
	go func() {
		defer cancel()
		c.result = do(ctx, func() { close(c.sent) })
		g.mu.Lock()
		defer g.mu.Unlock()
		g.remove(c) // first: a later Join must not get a result of before it
		close(c.done)
	}()
	return c
}

// Leave ends the wait of one Join. A call that the last waiter leaves is canceled,
// unless its request has been sent.
func (g *Group[K, V]) Leave(c *Call[K, V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.waiters--; c.waiters > 0 {
		return
	}
	select {
	case <-c.sent: // later callers may join and get the result
	default:
		c.cancel()
		g.remove(c)
	}
}

func (g *Group[K, V]) remove(c *Call[K, V]) {
	if g.calls[c.key] == c {
		delete(g.calls, c.key)
	}
}
