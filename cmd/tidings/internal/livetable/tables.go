package livetable

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// Options configure [Tables]. The zero value is usable.
type Options struct {
	// MaxPerCaller is the number of windows that one caller may have open. 0 means 32.
	// Requests without a caller are not limited.
	MaxPerCaller int
	// MaxBytes is about how much memory all tables may take; those of one caller may
	// take half of it. 0 means 512 MiB.
	MaxBytes int64
	// Linger is how long a table is kept up to date after its last window was closed:
	// the next one may come soon. 0 means 5 seconds.
	Linger time.Duration
	// Moment returns what frames say of the moment that a table of the past shows, as
	// JSON. It is needed only for such tables.
	Moment func(*read.Past) any
}

// Tables has the live tables of a reader. Its methods are safe for concurrent use.
type Tables struct {
	reader  *read.Reader
	opts    Options
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	open    map[tableKey]*liveTable
	windows map[string]int // by caller
	bytes   map[string]int64
	total   int64
}

// tableKey identifies what a query selects. Queries that select the same have the same
// objects, whoever may read them.
type tableKey struct {
	cluster        *mirror.Cluster
	resource       schema.GroupVersionResource
	namespace      string
	labels, fields string
	within         string
	at             string // the moment; "": the present
	further        string // the further columns
}

func keyOf(q *read.Query, further []string) tableKey {
	p := q.Params()
	k := tableKey{cluster: p.Cluster, resource: p.Resource, namespace: p.Namespace, within: "*", further: strings.Join(further, ",")}
	if p.Labels != nil {
		k.labels = p.Labels.String()
	}
	if p.Fields != nil {
		k.fields = p.Fields.String()
	}
	if p.At != nil {
		k.at = p.At.String()
	}
	if within, limited := q.Namespaces(); limited {
		k.within = strings.Join(within, ",")
	}
	return k
}

// New returns the tables of a reader. It starts no goroutines. The caller must call
// [Tables.Close] in the end.
func New(reader *read.Reader, opts Options) *Tables {
	if opts.MaxPerCaller <= 0 {
		opts.MaxPerCaller = 32
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = 512 << 20
	}
	if opts.Linger <= 0 {
		opts.Linger = 5 * time.Second
	}
	t := &Tables{reader: reader, opts: opts, open: map[tableKey]*liveTable{}, windows: map[string]int{}, bytes: map[string]int64{}}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t
}

var errClosed = &mirror.Error{Reason: mirror.Ended, Message: "the server is shutting down"}

// Close ends all tables and waits for their goroutines.
func (t *Tables) Close() {
	t.mu.Lock()
	t.closed = true
	for _, one := range t.open {
		if one.expiry != nil {
			one.expiry.Stop()
		}
	}
	t.mu.Unlock()
	t.cancel(errClosed)
	t.running.Wait()
}

// Held is a table that is kept up to date for a caller until it is released.
type Held struct {
	tables *Tables
	table  *liveTable
	caller string
	once   sync.Once
}

// Hold returns the table of a query, which must have been authorized for the caller of
// ctx, with the further columns that the windows of it name. It waits for the columns of
// the table, not for its rows. Errors that a caller can act on are [*mirror.Error]s or, if
// too much is open, of status 429.
func (t *Tables) Hold(ctx context.Context, q *read.Query, p Params) (*Held, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	further, err := p.further(q)
	if err != nil {
		return nil, err
	}
	caller := read.CallerOf(ctx)
	one, err := t.enter(q, further, caller)
	if err != nil {
		return nil, err
	}
	h := &Held{tables: t, table: one, caller: caller}
	select {
	case <-one.headed:
	case <-one.ctx.Done():
		err = context.Cause(one.ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		h.Release()
		return nil, err
	}
	return h, nil
}

// Done is closed when the table has ended; [Held.Err] says why.
func (h *Held) Done() <-chan struct{} { return h.table.ctx.Done() }

// Err is why the table has ended, nil if it has not.
func (h *Held) Err() error { return context.Cause(h.table.ctx) }

// Release gives the table back. It may be called again.
func (h *Held) Release() { h.once.Do(func() { h.tables.leave(h.table, h.caller) }) }

// enter returns the table of a query, and counts a window of it.
func (t *Tables) enter(q *read.Query, further []string, caller string) (*liveTable, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(q, further)
	one := t.open[key]
	switch {
	case t.closed:
		return nil, errClosed
	case caller != "" && t.windows[caller] >= t.opts.MaxPerCaller:
		return nil, tooMany("you have %d tables open, which is the limit for one caller: close one", t.opts.MaxPerCaller)
	case one == nil && t.full(caller):
		return nil, errFull
	case one == nil:
		one = &liveTable{tables: t, key: key, owner: caller, query: q, further: further, headed: make(chan struct{}), hurry: make(chan struct{}, 1), rows: map[string]*row{}, orders: map[sorting]*order{}}
		one.ctx, one.cancel = context.WithCancelCause(t.ctx)
		t.open[key] = one
		t.running.Go(one.run)
	}
	if one.users++; one.expiry != nil {
		one.expiry.Stop()
		one.expiry = nil
	}
	t.windows[caller]++
	return one, nil
}

// leave is the opposite of enter.
func (t *Tables) leave(one *liveTable, caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.windows[caller]--; t.windows[caller] == 0 {
		delete(t.windows, caller)
	}
	if one.users--; one.users > 0 || t.closed || t.open[one.key] != one {
		return
	}
	one.expiry = time.AfterFunc(t.opts.Linger, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users == 0 && t.open[one.key] == one {
			delete(t.open, one.key)
			one.cancel(errUnused)
		}
	})
}

// forget makes the next window of the same query begin with a new table.
func (t *Tables) forget(one *liveTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[one.key] == one {
		delete(t.open, one.key)
	}
}

// charge adds to the memory that a caller's tables take. The error says that it is too
// much.
func (t *Tables) charge(caller string, bytes int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += bytes
	if t.bytes[caller] += bytes; t.bytes[caller] == 0 {
		delete(t.bytes, caller)
	}
	if t.full(caller) {
		return errFull
	}
	return nil
}

func (t *Tables) full(caller string) bool {
	return t.total >= t.opts.MaxBytes || caller != "" && t.bytes[caller] >= t.opts.MaxBytes/2
}

var errFull = tooMany("the tables that are open take all the memory that there is for them: close one, or select less")

func tooMany(format string, args ...any) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf(format, args...), 5)
}
