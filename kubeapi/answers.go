package kubeapi

import (
	"container/list"
	"context"
	"errors"
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
	making  map[answerKey]*making
}

// making is an answer that is to be made. All who ask for it ask for room to make it,
// each for its own share, until one of them has room; the others wait for that one.
type making struct {
	asking int // for room; answers.mu guards it
	begun  context.Context
	begin  context.CancelFunc
	done   chan struct{}
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

// get returns what is kept, or makes it once admit has let it; while somebody makes it,
// all others wait. The error is ctx's, or that of admit or pack, or errUnshared.
func (a *answers) get(ctx context.Context, k answerKey, admit func(context.Context) (leave func(), err error), pack func() (*packed, error)) (*packed, error) {
	for {
		a.mu.Lock()
		if e, ok := a.entries[k]; ok {
			a.order.MoveToFront(e)
			a.mu.Unlock()
			if made := e.Value.(*answer).made; made != nil {
				return made, nil
			}
			return nil, errUnshared
		}
		m := a.making[k]
		if m == nil {
			m = &making{done: make(chan struct{})}
			m.begun, m.begin = context.WithCancel(context.Background())
			a.making[k] = m
		}
		m.asking++
		a.mu.Unlock()
		leave, err := a.enter(ctx, k, m, admit)
		if err != nil {
			return nil, err
		}
		if leave != nil {
			defer leave()
			return a.make(k, m, pack)
		}
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// enter asks for room to make an answer, until another has begun to make it: then leave
// is nil. A refusal is of this caller alone.
func (a *answers) enter(ctx context.Context, k answerKey, m *making, admit func(context.Context) (func(), error)) (leave func(), err error) {
	if m.begun.Err() == nil {
		asking, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(m.begun, cancel)()
		leave, err = admit(asking)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m.asking--
	switch {
	case m.begun.Err() != nil:
		if leave != nil {
			leave()
		}
		return nil, nil
	case err == nil:
		m.begin()
	case m.asking == 0:
		delete(a.making, k)
	}
	return leave, err
}

// make makes an answer and keeps it.
func (a *answers) make(k answerKey, m *making, pack func() (*packed, error)) (made *packed, err error) {
	defer func() { // also if it panics
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.making, k)
		defer close(m.done)
		switch {
		case errors.Is(err, errUnshared):
			a.keep(k, nil)
		case err == nil && made != nil:
			a.keep(k, made)
		}
	}()
	return pack()
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
