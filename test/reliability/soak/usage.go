package soak

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Usage is the resource usage of a process at one time.
type Usage struct {
	Heap       uint64 // bytes allocated: live, and dead since the last collection
	RSS        uint64
	Goroutines uint64
	FDs        uint64
	GCs        uint64 // collections so far
	CPU        float64
}

// Usage reads /metrics.
func (p *Process) Usage(ctx context.Context) (Usage, error) {
	m, err := p.Metrics(ctx)
	if err != nil {
		return Usage{}, err
	}
	return Usage{
		Heap: uint64(m["go_memstats_heap_alloc_bytes"]), RSS: uint64(m["process_resident_memory_bytes"]),
		Goroutines: uint64(m["go_goroutines"]), FDs: uint64(m["process_open_fds"]), GCs: uint64(m["go_gc_duration_seconds"]),
		CPU: m["process_cpu_seconds_total"],
	}, nil
}

// Metrics reads /metrics: the sum of each family, of summaries the count.
func (p *Process) Metrics(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the server's metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the server's metrics: %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bufio.NewReader(resp.Body))
	if err != nil {
		return nil, fmt.Errorf("read the server's metrics: %w", err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			sums[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue() + float64(m.GetSummary().GetSampleCount())
		}
	}
	return sums, nil
}

// meter samples what the server uses.
type meter struct {
	mu   sync.Mutex
	peak Usage
}

func (m *meter) sample(u Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peak = Usage{
		Heap: max(m.peak.Heap, u.Heap), RSS: max(m.peak.RSS, u.RSS), Goroutines: max(m.peak.Goroutines, u.Goroutines),
		FDs: max(m.peak.FDs, u.FDs), GCs: u.GCs, CPU: u.CPU,
	}
}

// measure samples the server's usage.
func (s *soak) measure(ctx context.Context) error {
	for Sleep(ctx, meterEvery) {
		u, err := s.server.Usage(ctx)
		if err != nil {
			continue // it ended, which is reported elsewhere, or the run did
		}
		s.report.usage.sample(u)
	}
	return nil
}

// settled returns the server's usage without writes: the least of several samples right
// after garbage collections. It waits for the allowance, if there is one.
func (s *soak) settled(ctx context.Context, allowed Usage) Usage {
	least := Usage{Heap: ^uint64(0), RSS: ^uint64(0), Goroutines: ^uint64(0), FDs: ^uint64(0)}
	client := s.client(false)
	defer client.CloseIdleConnections()
	patience := settle
	if allowed == (Usage{}) {
		patience = 15 * time.Second
	}
	for begun := time.Now(); time.Since(begun) < patience && Sleep(ctx, 100*time.Millisecond); {
		// Lists make garbage, which has the server collect it.
		_, _ = s.get(ctx, client, s.url+pods.path(nil), "application/json", "")
		u, err := s.server.Usage(ctx)
		if err != nil {
			continue
		}
		least = Usage{Heap: min(least.Heap, u.Heap), RSS: min(least.RSS, u.RSS), Goroutines: min(least.Goroutines, u.Goroutines), FDs: min(least.FDs, u.FDs), GCs: u.GCs, CPU: u.CPU}
		if allowed != (Usage{}) && time.Since(begun) > 10*time.Second && within(least, allowed) {
			break
		}
	}
	return least
}

// allowance returns the permitted usage at the end: a fourth more heap plus the 64 MB
// of encodings that the server may cache, which is not full at first; 5 % plus 30 more
// goroutines; 30 more files.
func allowance(before Usage) Usage {
	return Usage{Heap: before.Heap + before.Heap/4 + 64<<20, Goroutines: before.Goroutines + before.Goroutines/20 + 30, FDs: before.FDs + 30}
}

func within(u, allowed Usage) bool {
	return u.Heap <= allowed.Heap && u.Goroutines <= allowed.Goroutines && u.FDs <= allowed.FDs
}

func (r *Report) setBaseline(u Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.baseline = u
}

func (r *Report) setFinal(u Usage) {
	r.mu.Lock()
	r.final = u
	before := r.baseline
	r.mu.Unlock()
	if before == (Usage{}) {
		return
	}
	if allowed := allowance(before); !within(u, allowed) {
		r.mismatch("server", fmt.Sprintf("does not give back what it took: %s of heap, %d goroutines and %d files at the end; allowed are %s, %d and %d",
			mb(u.Heap), u.Goroutines, u.FDs, mb(allowed.Heap), allowed.Goroutines, allowed.FDs), nil)
	}
}
