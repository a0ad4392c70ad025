// Package flight asks each question once at a time, for all that wait for its
// answer. A question that nobody waits for any more is withdrawn, unless it has
// been sent.
package flight

import (
	"context"
	"sync"
)

// Group has the questions under way. Its zero value is ready for use.
type Group[K comparable, V any] struct {
	mu    sync.Mutex
	under map[K]*Flight[K, V]
}

// Flight is a question under way.
type Flight[K comparable, V any] struct {
	key      K
	waiting  int // under the lock of the group
	withdraw context.CancelFunc
	sent     chan struct{}
	landed   chan struct{}
	answer   V
}

// Sent is closed when the question has been sent.
func (f *Flight[K, V]) Sent() <-chan struct{} { return f.sent }

// Landed is closed when there is an answer.
func (f *Flight[K, V]) Landed() <-chan struct{} { return f.landed }

// Answer is the answer to a question that has landed.
func (f *Flight[K, V]) Answer() V { return f.answer }

// Join waits for the answer to a question, which do finds out if no flight does.
// Whoever joins is to leave.
//
// do calls sent when it sends the question. Its context has the values of ctx. It
// ends when the question is withdrawn, which may be at the moment it is sent: what
// is sent needs a context without that end.
func (g *Group[K, V]) Join(ctx context.Context, key K, do func(ctx context.Context, sent func()) V) *Flight[K, V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.under[key]; f != nil {
		f.waiting++
		return f
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Flight[K, V]{key: key, waiting: 1, withdraw: cancel, sent: make(chan struct{}), landed: make(chan struct{})}
	if g.under == nil {
		g.under = map[K]*Flight[K, V]{}
	}
	g.under[key] = f
	go func() {
		defer cancel()
		f.answer = do(ctx, func() { close(f.sent) })
		close(f.landed)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.forget(f)
	}()
	return f
}

// Leave is for one that has joined and does not wait any more.
func (g *Group[K, V]) Leave(f *Flight[K, V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	select {
	case <-f.sent: // its answer is for those who ask next
	default:
		f.withdraw()
		g.forget(f)
	}
}

func (g *Group[K, V]) forget(f *Flight[K, V]) {
	if g.under[f.key] == f {
		delete(g.under, f.key)
	}
}
