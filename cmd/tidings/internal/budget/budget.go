// Package budget bounds the memory and CPU time of all responses that are being made.
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

// Cost is what a response takes while it is made and sent.
type Cost struct {
	Bytes int64         // peak memory, without garbage
	Work  time.Duration // CPU time
}

// Budget bounds the responses that are being made at the same time. A response that
// does not fit waits, and is refused after a while; it is never started and then cut
// off.
//
// The budget has two bounds: one on memory, one on the number of long responses. More
// long responses at a time would all take longer and none would be done earlier. One
// caller has half of both and, of very long responses, no more than can be done in
// time, so the long lists of one caller do not keep all others waiting. A response that
// exceeds the whole budget is admitted when nothing else is.
type Budget struct {
	max     int64
	cpus    int
	timeout time.Duration // of a request

	mu       sync.Mutex
	used     int64
	admitted map[*ticket]bool
	queue    []*ticket // in order of arrival
	refused  uint64
}

// ticket is a response that waits or is being made.
type ticket struct {
	caller  string // "": no particular caller
	bytes   int64
	maxLong int // how many long responses the caller may have at a time, with this one; 0: it is not long
	ready   chan struct{}
}

const (
	// 1/memoryFraction of the memory limit is for responses; without a limit,
	// defaultBytes.
	memoryFraction = 4
	defaultBytes   = 1 << 30
	// A response is long if it takes more than 1/longFraction of a request's timeout.
	// It may wait for 1/waitFraction of the timeout, and should be made within
	// 1/workFraction: the CPUs have other work and clients may be slow.
	longFraction, waitFraction, workFraction = 600, 3, 4
	// longPerCPU bounds the long responses for each CPU.
	longPerCPU = 2
	// maxQueue bounds the responses that wait: each holds the list of its objects. Half
	// of them may be of one caller.
	maxQueue = 100
	// retryAfter is the Retry-After of a refusal, in seconds.
	retryAfter = 5
	// pageLimit is the limit that a refusal suggests: a page of that size is never too
	// long.
	pageLimit = 500
)

// New returns a budget for a server with a memory limit, 0 if unknown, and a request
// timeout.
func New(memory uint64, timeout time.Duration) *Budget {
	return &Budget{max: cmp.Or(int64(memory)/memoryFraction, defaultBytes), cpus: runtime.GOMAXPROCS(0), timeout: timeout, admitted: map[*ticket]bool{}}
}

// Admit waits until there is room for a response of a caller; "" is no particular
// caller. Call release when the response has been sent. The error is a 429 with
// Retry-After, or that of ctx.
func (b *Budget) Admit(ctx context.Context, caller string, cost Cost) (release func(), err error) {
	t := &ticket{caller: caller, bytes: cost.Bytes, ready: make(chan struct{})}
	if cost.Work > b.timeout/longFraction {
		if cost.Work > b.timeout {
			return nil, b.refuse(fmt.Sprintf("this response takes about %.0f seconds to make, longer than a request may take; ask for pages, with limit=%d", cost.Work.Seconds(), pageLimit))
		}
		t.maxLong = max(1, min(longPerCPU*b.cpus, int(b.timeout/workFraction*time.Duration(b.cpus)/cost.Work)))
	}
	if reason := b.enqueue(t); reason != "" {
		return nil, b.refuse(reason)
	}
	timer := time.NewTimer(b.timeout / waitFraction)
	defer timer.Stop()
	select {
	case <-t.ready:
		return func() { b.release(t) }, nil
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if b.abandon(t) {
		return func() { b.release(t) }, nil
	}
	if err == nil {
		err = b.refuse(fmt.Sprintf("there is no room for this response among those being made; try again, or ask for pages, with limit=%d", pageLimit))
	}
	return nil, err
}

func (b *Budget) refuse(reason string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused++
	return apierrors.NewTooManyRequests(reason, retryAfter)
}

// enqueue queues a ticket and admits what fits. If the ticket has to wait and the queue
// is full, it is removed, and enqueue returns why.
func (b *Budget) enqueue(t *ticket) (reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, t)
	b.dispatch()
	if b.admitted[t] {
		return ""
	}
	queued := 0
	for _, o := range b.queue {
		if o.caller == t.caller {
			queued++
		}
	}
	switch {
	case len(b.queue) > maxQueue:
		reason = "too many responses are waiting to be made; try again"
	case t.caller != "" && queued > maxQueue/2:
		reason = "too many of your responses are waiting to be made; try again when some are done"
	default:
		return ""
	}
	b.queue = b.queue[:len(b.queue)-1] // the ticket is the last
	return reason
}

func (b *Budget) release(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.admitted, t)
	b.used -= t.bytes
	b.dispatch()
}

// abandon removes a ticket from the queue. It returns true if the ticket has just been
// admitted.
func (b *Budget) abandon(t *ticket) (admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admitted[t] {
		return true
	}
	b.queue = slices.DeleteFunc(b.queue, func(o *ticket) bool { return o == t })
	b.dispatch()
	return false
}

// dispatch admits the tickets that fit. b.mu is held. A ticket that exceeds its
// caller's share keeps no other waiting. A ticket that exceeds what all share keeps
// later tickets of the same need waiting; otherwise a long list would never be
// admitted.
func (b *Budget) dispatch() {
	bytesFull, longFull := false, false
	b.queue = slices.DeleteFunc(b.queue, func(t *ticket) bool {
		if bytesFull || longFull && t.maxLong > 0 || !b.fitsCaller(t) {
			return false
		}
		if !b.fits(t) {
			bytesFull = b.used+t.bytes > b.max
			longFull = t.maxLong > 0
			return false
		}
		b.admitted[t] = true
		b.used += t.bytes
		close(t.ready)
		return true
	})
}

// fits reports whether there is room for a ticket.
func (b *Budget) fits(t *ticket) bool {
	long := 0
	for o := range b.admitted {
		if o.maxLong > 0 {
			long++
		}
	}
	return len(b.admitted) == 0 || b.used+t.bytes <= b.max && (t.maxLong == 0 || long < longPerCPU*b.cpus)
}

// fitsCaller reports whether there is room for a ticket in its caller's share.
func (b *Budget) fitsCaller(t *ticket) bool {
	used, hasOther, long, maxLong := t.bytes, false, 0, t.maxLong
	for o := range b.admitted {
		if o.caller != t.caller {
			continue
		}
		hasOther = true
		if used += o.bytes; o.maxLong > 0 {
			long++
			maxLong = min(maxLong, o.maxLong)
		}
	}
	maxBytes := b.max
	if t.caller != "" {
		maxBytes, maxLong = maxBytes/2, max(1, maxLong/2)
	}
	return !hasOther || used <= maxBytes && (t.maxLong == 0 || long < maxLong)
}

var (
	budgetDesc        = prometheus.NewDesc("tidings_answers_budget_bytes", "Memory for responses that are being made.", nil, nil)
	budgetUsedDesc    = prometheus.NewDesc("tidings_answers_budget_used_bytes", "Memory that the responses being made are estimated to take.", nil, nil)
	budgetWaitingDesc = prometheus.NewDesc("tidings_answers_waiting", "Responses that wait for room.", nil, nil)
	budgetRefusedDesc = prometheus.NewDesc("tidings_answers_refused_total", "Requests answered 429 because there was no room for their responses.", nil, nil)
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
	ch <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, float64(b.max))
	ch <- prometheus.MustNewConstMetric(budgetUsedDesc, prometheus.GaugeValue, float64(b.used))
	ch <- prometheus.MustNewConstMetric(budgetWaitingDesc, prometheus.GaugeValue, float64(len(b.queue)))
	ch <- prometheus.MustNewConstMetric(budgetRefusedDesc, prometheus.CounterValue, float64(b.refused))
}
