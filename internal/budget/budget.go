// Package budget bounds what the answers that are being made take together.
package budget

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Cost is what an answer takes while it is made and sent.
type Cost struct {
	Bytes int64         // of memory at a time, without garbage
	Work  time.Duration // of one processor
}

// Budget is what the answers that are being made may take together. One that does
// not fit waits for a moment, and is refused then: it is never begun and cut off.
//
// There is a bound on their memory. And those that take long are few at a time: more
// would not be done earlier, all together, and each later. A caller has half of both,
// and of what takes very long no more than is done in time; so the long lists of one do
// not keep all others waiting. What is more than all that is let in when there is
// nothing else.
type Budget struct {
	most       int64
	processors int
	timeout    time.Duration // of a request

	mu      sync.Mutex
	used    int64
	inside  map[*ticket]bool
	queue   []*ticket // in the order in which they came
	refused uint64
}

// ticket is an answer that is to be made, or being made.
type ticket struct {
	caller string // "" is nobody in particular
	bytes  int64
	beside int // how many that take long the caller may have at a time, with this one; 0: it does not take long
	in     chan struct{}
}

const (
	// budgetPart of the memory limit is for answers; without a limit, budgetDefault.
	budgetPart    = 4
	budgetDefault = 1 << 30
	// longPart of the time of a request is from which on an answer takes long;
	// patiencePart is how long it may wait, makingPart in how long it is to be done:
	// the processors may have other things to do, and clients to wait for.
	longPart, patiencePart, makingPart = 600, 3, 4
	// longEach is how many that take long there are for each processor at most.
	longEach = 2
	// maxQueue is how many may wait: each holds the list of what it is about. Half of
	// them may be of one caller.
	maxQueue = 100
	// comeBack is when who is refused should ask again.
	comeBack = 5
	// page is how long a list may be that is never too long.
	page = 500
)

// New returns the budget of a server that may use so much memory, 0 if nobody knows,
// and whose requests may take so long.
func New(memory uint64, timeout time.Duration) *Budget {
	return &Budget{most: cmp.Or(int64(memory)/budgetPart, budgetDefault), processors: runtime.GOMAXPROCS(0), timeout: timeout, inside: map[*ticket]bool{}}
}

// Admit lets a caller's answer be made, "" being nobody in particular: at once, or
// when there is room for it. The function that is returned says that it has been sent.
// The error is a 429 with Retry-After, or that of ctx.
func (b *Budget) Admit(ctx context.Context, caller string, cost Cost) (leave func(), err error) {
	t := &ticket{caller: caller, bytes: cost.Bytes, in: make(chan struct{})}
	if cost.Work > b.timeout/longPart {
		if cost.Work > b.timeout {
			return nil, b.refuse(fmt.Sprintf("it takes about %.0f seconds to make this answer, longer than a request may take: ask for pages, with limit=%d", cost.Work.Seconds(), page))
		}
		t.beside = max(1, min(longEach*b.processors, int(b.timeout/makingPart*time.Duration(b.processors)/cost.Work)))
	}
	if why := b.enter(t); why != "" {
		return nil, b.refuse(why)
	}
	patience := time.NewTimer(b.timeout / patiencePart)
	defer patience.Stop()
	var why error
	select {
	case <-t.in:
		return func() { b.leave(t) }, nil
	case <-patience.C:
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	if b.giveUp(t) {
		return func() { b.leave(t) }, nil
	}
	if why == nil {
		why = b.refuse(fmt.Sprintf("the answers that are being made leave no room for this one: ask again, or for pages, with limit=%d", page))
	}
	return nil, why
}

func (b *Budget) refuse(why string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused++
	return apierrors.NewTooManyRequests(why, comeBack)
}

// enter queues a ticket, and lets in whom there is room for. A ticket that has to wait
// is refused if too many wait: enter returns why.
func (b *Budget) enter(t *ticket) (why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, t)
	b.next()
	if b.inside[t] {
		return ""
	}
	ofCaller := 0
	for _, o := range b.queue {
		if o.caller == t.caller {
			ofCaller++
		}
	}
	switch {
	case len(b.queue) > maxQueue:
		why = "too many answers are waiting to be made: ask again"
	case t.caller != "" && ofCaller > maxQueue/2:
		why = "too many of your answers are waiting to be made: ask again when you have got some"
	default:
		return ""
	}
	b.queue = b.queue[:len(b.queue)-1] // the ticket is the last one
	return why
}

func (b *Budget) leave(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.inside, t)
	b.used -= t.bytes
	b.next()
}

// giveUp takes a ticket out of the queue, unless it has been let in at this very
// moment.
func (b *Budget) giveUp(t *ticket) (in bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inside[t] {
		return true
	}
	b.queue = slices.DeleteFunc(b.queue, func(o *ticket) bool { return o == t })
	b.next()
	return false
}

// next lets in whom there is room for. b.mu is held. Who has all of a caller's share
// keeps nobody else waiting. Who lacks room of all keeps those waiting who came later
// and want the same, or it would never be a long list's turn.
func (b *Budget) next() {
	full, longFull := false, false
	b.queue = slices.DeleteFunc(b.queue, func(t *ticket) bool {
		if full || longFull && t.beside > 0 || !b.ofCaller(t) {
			return false
		}
		if !b.ofAll(t) {
			full = b.used+t.bytes > b.most
			longFull = t.beside > 0
			return false
		}
		b.inside[t] = true
		b.used += t.bytes
		close(t.in)
		return true
	})
}

// ofAll says whether there is room for a ticket.
func (b *Budget) ofAll(t *ticket) bool {
	long := 0
	for o := range b.inside {
		if o.beside > 0 {
			long++
		}
	}
	return len(b.inside) == 0 || b.used+t.bytes <= b.most && (t.beside == 0 || long < longEach*b.processors)
}

// ofCaller says whether there is room for it in the share of its caller.
func (b *Budget) ofCaller(t *ticket) bool {
	used, others, long, beside := t.bytes, false, 0, t.beside
	for o := range b.inside {
		if o.caller != t.caller {
			continue
		}
		others = true
		if used += o.bytes; o.beside > 0 {
			long++
			beside = min(beside, o.beside)
		}
	}
	most := b.most
	if t.caller != "" {
		most, beside = most/2, max(1, beside/2)
	}
	return !others || used <= most && (t.beside == 0 || long < beside)
}

var (
	budgetDesc        = prometheus.NewDesc("tidings_answers_budget_bytes", "Memory for answers that are being made.", nil, nil)
	budgetUsedDesc    = prometheus.NewDesc("tidings_answers_budget_used_bytes", "Memory that answers being made are counted with.", nil, nil)
	budgetWaitingDesc = prometheus.NewDesc("tidings_answers_waiting", "Answers that wait for room to be made.", nil, nil)
	budgetRefusedDesc = prometheus.NewDesc("tidings_answers_refused_total", "Requests answered 429 because there was no room for their answers.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (b *Budget) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{budgetDesc, budgetUsedDesc, budgetWaitingDesc, budgetRefusedDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (b *Budget) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, float64(b.most))
	ch <- prometheus.MustNewConstMetric(budgetUsedDesc, prometheus.GaugeValue, float64(b.used))
	ch <- prometheus.MustNewConstMetric(budgetWaitingDesc, prometheus.GaugeValue, float64(len(b.queue)))
	ch <- prometheus.MustNewConstMetric(budgetRefusedDesc, prometheus.CounterValue, float64(b.refused))
}
