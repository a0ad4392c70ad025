package server

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// When memory runs short, the server does less, step by step, rather than die:
// from which part of the limit on that is.
const (
	foldEarlyAt   = 0.75 // what waits for slow watches is folded much earlier
	refuseWatchAt = 0.85 // new watches are refused
	refuseListAt  = 0.92 // and lists of everything
	// lookEvery is how often it is looked at how much there is.
	lookEvery = 250 * time.Millisecond
	// foldEarly is by how much less may wait for a slow watch.
	foldEarly = 50
)

// memory guards against using more than there is.
type memory struct {
	limit  uint64 // 0: none
	mirror *mirror.Mirror

	mu      sync.Mutex
	looked  time.Time
	folding bool

	last    atomic.Uint64 // bytes used, when it was looked at last
	refused [2]atomic.Uint64
}

// newMemory guards limit bytes; 0 means those of GOMEMLIMIT, if it is set.
func newMemory(m *mirror.Mirror, limit int64) *memory {
	if limit <= 0 {
		if limit = debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
			limit = 0
		}
	}
	return &memory{limit: uint64(limit), mirror: m}
}

// inUse is what the program cannot do without, by the last collection: what is
// alive in the heap, stacks, and what the runtime has for itself. Garbage does not
// count. With a limit there is always garbage up to it.
func inUse() uint64 {
	samples := []runtimemetrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/os-stacks:bytes"},
		{Name: "/memory/classes/metadata/mcache/inuse:bytes"}, {Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"}, {Name: "/memory/classes/other:bytes"},
	}
	runtimemetrics.Read(samples)
	sum := uint64(0)
	for _, s := range samples {
		if s.Value.Kind() == runtimemetrics.KindUint64 {
			sum += s.Value.Uint64()
		}
	}
	return sum
}

// look returns how much of the limit is used, looked at a moment ago at most, and
// has what waits for slow watches folded if that is much.
func (m *memory) look() float64 {
	if m.limit == 0 {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.looked) >= lookEvery {
		m.looked = now
		m.last.Store(inUse())
	}
	part := float64(m.last.Load()) / float64(m.limit)
	if short := part >= foldEarlyAt; short != m.folding {
		m.folding = short
		divisor := 1
		if short {
			divisor = foldEarly
		}
		m.mirror.FoldEarlier(divisor)
	}
	return part
}

// mind looks every so often, also while nobody asks for anything.
func (m *memory) mind(ctx context.Context) {
	if m.limit == 0 {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.look()
		}
	}
}

// admit refuses what the memory is too short for.
func (m *memory) admit(c class, everything bool) error {
	part := m.look()
	switch {
	case c == open && part >= refuseWatchAt:
	case c == brief && everything && part >= refuseListAt:
	default:
		return nil
	}
	m.refused[c].Add(1)
	what := "new watches are refused for now"
	if c == brief {
		what = fmt.Sprintf("ask for pages of %d at most", manyAre)
	}
	return tooMany(c, fmt.Sprintf("memory is short, %s: %s", m.describe(part), what))
}

func (m *memory) describe(part float64) string {
	return fmt.Sprintf("%.0f %% of %d MB are in use", 100*part, m.limit>>20)
}

// mayAnswer is [kubeapi.Admit].
func (s *Server) mayAnswer(ctx context.Context, cost kubeapi.Cost) (leave func(), err error) {
	return s.budget.Admit(ctx, read.CallerOf(ctx), cost)
}

// state is what /readyz says of it: a server that has little memory left is ready
// all the same.
func (m *memory) state() string {
	if m.limit == 0 {
		return ""
	}
	part := m.look()
	text := m.describe(part)
	if part >= foldEarlyAt {
		text += "; what waits for slow watches is folded early"
	}
	if part >= refuseWatchAt {
		text += "; new watches are refused"
	}
	if part >= refuseListAt {
		text += "; lists of everything are refused"
	}
	return text
}

var (
	memoryLimitDesc = prometheus.NewDesc("tidings_memory_limit_bytes", "Memory that the server may use; past 85 % of it new watches are refused. 0: no limit is known.", nil, nil)
	memoryUsedDesc  = prometheus.NewDesc("tidings_memory_used_bytes", "Memory that was in use at the last collection, without garbage; 0 without a limit.", nil, nil)
	memoryShortDesc = prometheus.NewDesc("tidings_memory_short_total", "Requests answered 429 because memory was short, by what they were.", []string{"of"}, nil)
)

// Describe implements [prometheus.Collector].
func (m *memory) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{memoryLimitDesc, memoryUsedDesc, memoryShortDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *memory) Collect(ch chan<- prometheus.Metric) {
	m.look()
	ch <- prometheus.MustNewConstMetric(memoryLimitDesc, prometheus.GaugeValue, float64(m.limit))
	ch <- prometheus.MustNewConstMetric(memoryUsedDesc, prometheus.GaugeValue, float64(m.last.Load()))
	for _, c := range []class{brief, open} {
		ch <- prometheus.MustNewConstMetric(memoryShortDesc, prometheus.CounterValue, float64(m.refused[c].Load()), c.String())
	}
}
