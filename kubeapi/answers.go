package kubeapi

import (
	"container/list"
	"context"
	"sync"

	"github.com/tidings-io/tidings/read"
)

// answers keeps the items of whole lists, so that of many who ask for the same one
// the first has it made and all others have it sent. A list is kept by what it
// holds and nothing of who has asked: whoever gets here may read all of it. What
// was not used for the longest time gives way.
type answers struct {
	most int64

	mu      sync.Mutex
	size    int64
	entries map[answerKey]*list.Element
	order   list.List // of *answer, the one used last in front
	making  map[answerKey]chan struct{}
}

// answerKey names the items of a list, in a form. They do not change; the list's
// own metadata is not among them.
type answerKey struct {
	of                        read.Identity
	namespace, labels, fields string
	what                      variant
}

type answer struct {
	key  answerKey
	made *packed
	size int64
}

func newAnswers(most int64) *answers {
	return &answers{most: most, entries: map[answerKey]*list.Element{}, making: map[answerKey]chan struct{}{}}
}

// get returns what is kept, or makes it; while somebody makes it, all others wait.
// The error is ctx's, or that of make.
func (a *answers) get(ctx context.Context, k answerKey, pack func() (*packed, error)) (*packed, error) {
	a.mu.Lock()
	for {
		if e, ok := a.entries[k]; ok {
			a.order.MoveToFront(e)
			a.mu.Unlock()
			return e.Value.(*answer).made, nil
		}
		others, busy := a.making[k]
		if !busy {
			break
		}
		a.mu.Unlock()
		select {
		case <-others:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		a.mu.Lock()
	}
	done := make(chan struct{})
	a.making[k] = done
	a.mu.Unlock()
	var made *packed
	defer func() { // also if it panics
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.making, k)
		close(done)
		if made != nil {
			a.keep(k, made)
		}
	}()
	var err error
	made, err = pack()
	return made, err
}

// keep keeps an answer, unless it would take the place of most others. a.mu is
// held.
func (a *answers) keep(k answerKey, made *packed) {
	size := int64(len(made.content)) + 2*overhead + int64(len(k.labels)+len(k.fields))
	if size > a.most/2 {
		return
	}
	a.entries[k] = a.order.PushFront(&answer{k, made, size})
	a.size += size
	for a.size > a.most {
		last := a.order.Remove(a.order.Back()).(*answer)
		delete(a.entries, last.key)
		a.size -= last.size
	}
}
