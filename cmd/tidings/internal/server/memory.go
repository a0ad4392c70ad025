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

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// When memory runs short, the server sheds load step by step, at these fractions of the
// limit.
const (
	foldEarlyAt   = 0.75 // fold the backlogs of slow watches much earlier
	refuseWatchAt = 0.85 // refuse new watches
	refuseListAt  = 0.92 // refuse full lists as well
	// sampleInterval is the shortest time between two samples of memory use.
	sampleInterval = 250 * time.Millisecond
	// foldDivisor divides the size at which the backlog of a slow watch is folded.
	foldDivisor = 50
)

// memory keeps memory use below a limit.
type memory struct {
	limit  uint64 // 0: none
	mirror *mirror.Mirror

	mu        sync.Mutex
	sampledAt time.Time
	folding   bool

	used    atomic.Uint64 // bytes, at the last sample
	refused [2]atomic.Uint64
}

// newMemory limits memory to limit bytes; 0 means GOMEMLIMIT, if set.
func newMemory(m *mirror.Mirror, limit int64) *memory {
	if limit <= 0 {
		if limit = debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
			limit = 0
		}
	}
	return &memory{limit: uint64(limit), mirror: m}
}

// inUse returns the memory that the program needs, as of the last garbage collection:
// live heap, stacks, and the runtime's own. Garbage does not count: with a limit there
// is always garbage up to it.
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

// usage returns the used fraction of the limit, from a recent sample, and turns early
// folding of backlogs on or off.
func (m *memory) usage() float64 {
	if m.limit == 0 {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.sampledAt) >= sampleInterval {
		m.sampledAt = now
		m.used.Store(inUse())
	}
	used := float64(m.used.Load()) / float64(m.limit)
	if folding := used >= foldEarlyAt; folding != m.folding {
		m.folding = folding
		divisor := 1
		if folding {
			divisor = foldDivisor
		}
		m.mirror.FoldEarlier(divisor)
	}
	return used
}

// run samples memory use until ctx ends, also while there are no requests.
func (m *memory) run(ctx context.Context) {
	if m.limit == 0 {
		return
	}
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.usage()
		}
	}
}

// admit refuses requests that there is too little memory for.
func (m *memory) admit(c class, everything bool) error {
	used := m.usage()
	switch {
	case c == longRunning && used >= refuseWatchAt:
	case c == short && everything && used >= refuseListAt:
	default:
		return nil
	}
	m.refused[c].Add(1)
	what := "new watches are refused for now"
	if c == short {
		what = fmt.Sprintf("ask for pages of %d at most", largePage)
	}
	return tooMany(c, fmt.Sprintf("memory is short, %s: %s", m.describe(used), what))
}

func (m *memory) describe(used float64) string {
	return fmt.Sprintf("%.0f %% of %d MB are in use", 100*used, m.limit>>20)
}

// admitAnswer is [kubeapi.Admit].
func (s *Server) admitAnswer(ctx context.Context, cost kubeapi.Cost) (leave func(), err error) {
	return s.budget.Admit(ctx, read.CallerOf(ctx), cost)
}

// state is the line of /readyz: a server with little memory left is ready nevertheless.
func (m *memory) state() string {
	if m.limit == 0 {
		return ""
	}
	used := m.usage()
	text := m.describe(used)
	if used >= foldEarlyAt {
		text += "; backlogs of slow watches are folded early"
	}
	if used >= refuseWatchAt {
		text += "; new watches are refused"
	}
	if used >= refuseListAt {
		text += "; full lists are refused"
	}
	return text
}

var (
	memoryLimitDesc = prometheus.NewDesc("tidings_memory_limit_bytes", "Memory that the server may use; new watches are refused from 85 % on. 0: no limit is known.", nil, nil)
	memoryUsedDesc  = prometheus.NewDesc("tidings_memory_used_bytes", "Memory in use at the last garbage collection, without garbage; 0 without a limit.", nil, nil)
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
	m.usage()
	ch <- prometheus.MustNewConstMetric(memoryLimitDesc, prometheus.GaugeValue, float64(m.limit))
	ch <- prometheus.MustNewConstMetric(memoryUsedDesc, prometheus.GaugeValue, float64(m.used.Load()))
	for _, c := range []class{short, longRunning} {
		ch <- prometheus.MustNewConstMetric(memoryShortDesc, prometheus.CounterValue, float64(m.refused[c].Load()), c.String())
	}
}
