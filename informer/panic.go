package informer

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// PanicError reports a panic of a function that the caller gave to [Transform] or
// [Filter]. It is the cause of a failed list or watch. [Status.LastPanic] also
// reports those of index functions, which fail nothing.
type PanicError struct {
	// Function is "Transform", "Filter", or the index, like `index "color"`.
	Function string
	// Key is the key of the object that the function was called with.
	Key string
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the goroutine that panicked, as of debug.Stack.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s panicked at %s: %v", e.Function, e.Key, e.Value)
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// panics counts and logs the panics of the functions of one informer.
type panics struct {
	log func() *slog.Logger

	mu     sync.Mutex
	count  uint64
	last   *PanicError
	logged time.Time
}

// logPanicsEvery limits the log, because a function that panics at one object often
// panics at all of them.
const logPanicsEvery = time.Second

// record counts a panic and logs it. It must be called by the deferred function that
// has recovered, so that the stack is that of the panic.
func (p *panics) record(function, key string, value any, effect string) *PanicError {
	e := &PanicError{Function: function, Key: key, Value: value, Stack: debug.Stack()}
	p.mu.Lock()
	p.count++
	p.last = e
	now, count := time.Now(), p.count
	quiet := count > 1 && now.Sub(p.logged) < logPanicsEvery
	if !quiet {
		p.logged = now
	}
	p.mu.Unlock()
	if !quiet {
		p.log().Warn("a function panicked; "+effect, "function", function, "key", key, "panic", fmt.Sprint(value), "panics", count, "stack", string(e.Stack))
	}
	return e
}

// indexPanicked records a panic of an index function.
func (p *panics) indexPanicked(index, key string, value any) {
	function := "index " + strconv.Quote(strings.TrimPrefix(index, indexPrefix))
	p.record(function, key, value, "the index does not have the object until it changes")
}

// status returns the number of panics and the last one.
func (p *panics) status() (uint64, *PanicError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.last
}
