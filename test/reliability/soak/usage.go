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

// taken is what one part takes during a run.
type taken struct {
	role                string
	before, peak, after Usage
}

// measure samples what the parts take.
func (s *soak) measure(ctx context.Context) error {
	for Sleep(ctx, meterEvery) {
		for _, p := range s.parts {
			patience, cancel := context.WithTimeout(ctx, meterEvery)
			u, err := p.usage(patience)
			cancel()
			if err == nil { // otherwise it is paused or has ended
				s.report.sample(p, u)
			}
		}
	}
	return nil
}

// settle returns what the parts take while nothing is written.
func (s *soak) settle(ctx context.Context, allowed func(*part) Usage) map[*part]Usage {
	var mu sync.Mutex
	var all sync.WaitGroup
	usages := map[*part]Usage{}
	for _, p := range s.parts {
		all.Go(func() {
			u := s.settled(ctx, p, allowed(p))
			mu.Lock()
			defer mu.Unlock()
			usages[p] = u
		})
	}
	all.Wait()
	return usages
}

// settled returns the usage of a part without writes: the least of several samples right
// after garbage collections. It waits for the allowance, if there is one.
func (s *soak) settled(ctx context.Context, p *part, allowed Usage) Usage {
	least := Usage{Heap: ^uint64(0), RSS: ^uint64(0), Goroutines: ^uint64(0), FDs: ^uint64(0)}
	client := s.client(false)
	defer client.CloseIdleConnections()
	patience := settleTime
	if allowed == (Usage{}) {
		patience = 15 * time.Second
	}
	for begun := time.Now(); time.Since(begun) < patience && Sleep(ctx, 100*time.Millisecond); {
		// Lists make garbage, which has the server collect it.
		if p.url != "" {
			_, _ = s.get(ctx, client, p.url+configMaps.path(nil), "application/json", "")
		}
		u, err := p.usage(ctx)
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

func (r *Report) of(p *part) *taken {
	t := r.taken[p.name]
	if t == nil {
		t = &taken{role: p.role}
		r.taken[p.name] = t
	}
	return t
}

func (r *Report) sample(p *part, u Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of(p)
	t.peak = Usage{
		Heap: max(t.peak.Heap, u.Heap), RSS: max(t.peak.RSS, u.RSS), Goroutines: max(t.peak.Goroutines, u.Goroutines),
		FDs: max(t.peak.FDs, u.FDs), GCs: u.GCs, CPU: u.CPU,
	}
}

func (r *Report) setBaselines(usages map[*part]Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, u := range usages {
		r.of(p).before = u
	}
}

// allowed is what a part may take at the end. Parts of one role take each other's place.
// The zero value means that it was not measured before.
func (r *Report) allowed(p *part) Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allowance(p.role)
}

func (r *Report) allowance(role string) Usage {
	var most Usage
	for _, t := range r.taken {
		if t.role == role {
			most = Usage{Heap: max(most.Heap, t.before.Heap), Goroutines: max(most.Goroutines, t.before.Goroutines), FDs: max(most.FDs, t.before.FDs)}
		}
	}
	if most == (Usage{}) {
		return most
	}
	return allowance(most)
}

func (r *Report) setFinals(usages map[*part]Usage) {
	for p, u := range usages {
		r.mu.Lock()
		r.of(p).after = u
		r.mu.Unlock()
		if allowed := r.allowed(p); allowed != (Usage{}) && !within(u, allowed) {
			r.mismatch(p.name, fmt.Sprintf("does not give back what it took: %s of heap, %d goroutines and %d files at the end; allowed are %s, %d and %d",
				mb(u.Heap), u.Goroutines, u.FDs, mb(allowed.Heap), allowed.Goroutines, allowed.FDs), nil)
		}
	}
}
