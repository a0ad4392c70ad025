package kubeapi

import (
	"container/list"
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
	making  map[answerKey]*making
}

// making is an answer that somebody makes.
type making struct {
	done chan struct{}
	// refused is why it may not be made now. Who waits for it is told the same, and
	// does not wait for that, too.
	refused error
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
	made *packed // nil: it is too long, see errUnshared
	size int64
}

func newAnswers(most int64) *answers {
	return &answers{most: most, entries: map[answerKey]*list.Element{}, making: map[answerKey]*making{}}
}

// get returns what is kept, or makes it; while somebody makes it, all others wait.
// The error is ctx's, or that of pack, or errUnshared.
func (a *answers) get(ctx context.Context, k answerKey, pack func() (*packed, error)) (*packed, error) {
	a.mu.Lock()
	for {
		if e, ok := a.entries[k]; ok {
			a.order.MoveToFront(e)
			a.mu.Unlock()
			if made := e.Value.(*answer).made; made != nil {
				return made, nil
			}
			return nil, errUnshared
		}
		others, busy := a.making[k]
		if !busy {
			break
		}
		a.mu.Unlock()
		select {
		case <-others.done:
			if others.refused != nil {
				return nil, others.refused
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		a.mu.Lock()
	}
	mine := &making{done: make(chan struct{})}
	a.making[k] = mine
	a.mu.Unlock()
	var made *packed
	var err error
	defer func() { // also if it panics
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.making, k)
		defer close(mine.done)
		switch {
		case apierrors.IsTooManyRequests(err):
			mine.refused = err
		case errors.Is(err, errUnshared):
			a.keep(k, nil)
		case err == nil && made != nil:
			a.keep(k, made)
		}
	}()
	made, err = pack()
	return made, err
}

// mostOfOne is how long one answer may be, so that it does not take the place of
// most others.
func (a *answers) mostOfOne() int64 { return a.most / 2 }

// keep keeps an answer. a.mu is held.
func (a *answers) keep(k answerKey, made *packed) {
	size := 2*overhead + int64(len(k.labels)+len(k.fields))
	if made != nil {
		size += made.kept()
	}
	if size > a.mostOfOne() {
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
