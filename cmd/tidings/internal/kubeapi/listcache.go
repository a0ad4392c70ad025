package kubeapi

import (
	"context"
	"errors"
	"sync"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// listCache keeps the packed items of whole lists. A list is packed for the first of
// several requests and sent to all. The key is what the list holds and nothing about the
// caller: all callers that get here may read the whole list. The cache evicts the least
// recently used lists.
type listCache struct {
	mu     sync.Mutex
	lists  sizedLRU[listKey, *packed] // nil: too long, see errTooLong
	builds map[listKey]*build
}

// build is a list that is about to be packed. All requests for it ask for admission,
// each for its own caller, until one of them is admitted. The others wait for that one.
type build struct {
	asking int // requests that ask for admission, under listCache.mu
	begun  context.Context
	begin  context.CancelFunc
	done   chan struct{}
}

// listKey identifies the items of a list in a form. They never change. The list's own
// metadata is not part of them.
type listKey struct {
	state                     read.Identity
	namespace, labels, fields string
	variant                   variant
}

func newListCache(max int64) *listCache {
	return &listCache{lists: newSizedLRU[listKey, *packed](max), builds: map[listKey]*build{}}
}

// get returns the items of a list. If they are not in the cache, get packs them once
// admit has admitted it, or waits for another request that does. The error is ctx's, that
// of admit or pack, or errTooLong.
func (c *listCache) get(ctx context.Context, k listKey, admit func(context.Context) (leave func(), err error), pack func() (*packed, error)) (*packed, error) {
	for {
		c.mu.Lock()
		if made, ok := c.lists.get(k); ok {
			c.mu.Unlock()
			if made == nil {
				return nil, errTooLong
			}
			return made, nil
		}
		b := c.builds[k]
		if b == nil {
			b = &build{done: make(chan struct{})}
			b.begun, b.begin = context.WithCancel(context.Background())
			c.builds[k] = b
		}
		b.asking++
		c.mu.Unlock()
		leave, err := c.enter(ctx, k, b, admit)
		if err != nil {
			return nil, err
		}
		if leave != nil {
			defer leave()
			return c.pack(k, b, pack)
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// enter asks for admission to pack a list, until another request has begun to pack it:
// then leave is nil. A refusal is for this caller alone.
func (c *listCache) enter(ctx context.Context, k listKey, b *build, admit func(context.Context) (func(), error)) (leave func(), err error) {
	if b.begun.Err() == nil {
		asking, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.begun, cancel)()
		leave, err = admit(asking)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b.asking--
	switch {
	case b.begun.Err() != nil:
		if leave != nil {
			leave()
		}
		return nil, nil
	case err == nil:
		b.begin()
	case b.asking == 0:
		delete(c.builds, k)
	}
	return leave, err
}

// pack packs a list and adds it to the cache.
func (c *listCache) pack(k listKey, b *build, pack func() (*packed, error)) (made *packed, err error) {
	defer func() { // also after a panic
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.builds, k)
		defer close(b.done)
		switch {
		case errors.Is(err, errTooLong):
			c.add(k, nil)
		case err == nil && made != nil:
			c.add(k, made)
		}
	}()
	return pack()
}

// maxOfOne is the maximum size of one list, so that it does not evict most others.
func (c *listCache) maxOfOne() int64 { return c.lists.max / 2 }

// add adds a list, unless it is too large. The caller holds c.mu.
func (c *listCache) add(k listKey, made *packed) {
	size := 2*overhead + int64(len(k.labels)+len(k.fields))
	if made != nil {
		size += made.memory()
	}
	if size <= c.maxOfOne() {
		c.lists.add(k, made, size)
	}
}
