package soak

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Report is the result of a run.
type Report struct {
	// Seed of the run.
	Seed uint64
	// Mutant in the server, if any.
	Mutant string

	mu         sync.Mutex
	begun      time.Time
	took       time.Duration
	counts     map[string]int // checks
	done       map[string]int // by the churn
	failed     int            // writes of the churn
	faults     map[string]*faultRecord
	lastFault  string
	replays    []*replay
	ends       map[string]map[string]int // of responses, by reader
	mismatches []Mismatch
	found      chan struct{}     // closed with the first mismatch
	taken      map[string]*taken // by the name of the part
}

// Mismatch is a difference between a reader and the truth.
type Mismatch struct {
	// After is when it was found.
	After time.Duration
	// Who is the reader, What the difference.
	Who, What string
	// Events are the last events of the reader, if any.
	Events []string
	// Fault is the current or last fault.
	Fault string
}

type faultRecord struct {
	times    int
	recovery []time.Duration // of each reader that is not slow, each time
	worst    string          // the slowest of these
	slowest  time.Duration   // of the slow readers
}

func newReport(seed uint64) *Report {
	return &Report{Seed: seed, begun: time.Now(), lastFault: "none so far", counts: map[string]int{}, done: map[string]int{}, faults: map[string]*faultRecord{}, ends: map[string]map[string]int{}, found: make(chan struct{}), taken: map[string]*taken{}}
}

func (r *Report) follow(p *replay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replays = append(r.replays, p)
}

// readers returns the readers that are not slow, and the slow ones.
func (r *Report) readers() (fast, slow []*replay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.replays {
		if p.slow {
			slow = append(slow, p)
		} else {
			fast = append(fast, p)
		}
	}
	return fast, slow
}

func (r *Report) count(check string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[check] += n
}

func (r *Report) did(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed++
		return
	}
	r.done[what]++
}

func (r *Report) ended(reader, how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends[reader] == nil {
		r.ends[reader] = map[string]int{}
	}
	r.ends[reader][how]++
}

func (r *Report) mismatch(reader, what string, events []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := Mismatch{After: time.Since(r.begun), Who: reader, What: what, Events: slices.Clone(events), Fault: r.lastFault}
	if r.mismatches = append(r.mismatches, m); len(r.mismatches) == 1 {
		close(r.found)
	}
}

// fault records the begin of a fault.
func (r *Report) fault(name string) *faultRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.faults[name]
	if f == nil {
		f = &faultRecord{}
		r.faults[name] = f
	}
	f.times++
	r.lastFault = fmt.Sprintf("%s, at %s", name, time.Since(r.begun).Round(100*time.Millisecond))
	return f
}

func (r *Report) recovered(f *faultRecord, p *replay, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.slow {
		f.slowest = max(f.slowest, took)
		return
	}
	if len(f.recovery) == 0 || took > slices.Max(f.recovery) {
		f.worst = p.kind + " " + p.name
	}
	f.recovery = append(f.recovery, took)
}

// Mismatches returns all mismatches.
func (r *Report) Mismatches() []Mismatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mismatches)
}

// Checks returns the number of comparisons.
func (r *Report) Checks() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.counts {
		n += c
	}
	return n
}

// Markdown writes the report.
func (r *Report) Markdown(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "no mismatch"
	if n := len(r.mismatches); n > 0 {
		verdict = fmt.Sprintf("**%d mismatches**", n)
	}
	fmt.Fprintf(w, "# Soak: %s\n\n", verdict)
	fmt.Fprintf(w, "Seed %d, %s, begun %s.", r.Seed, r.took.Round(time.Second), r.begun.UTC().Format("2006-01-02 15:04 MST"))
	if r.Mutant != "" {
		fmt.Fprintf(w, " The server has a mutant in it: %s.", r.Mutant)
	}
	fmt.Fprint(w, "\n\n## Checks\n\n| what | times |\n|---|--:|\n")
	for _, k := range sorted(r.counts) {
		fmt.Fprintf(w, "| %s | %d |\n", k, r.counts[k])
	}
	r.writeFaults(w)
	fmt.Fprint(w, "\n## What happened in the cluster\n\n| what | times |\n|---|--:|\n")
	for _, k := range sorted(r.done) {
		fmt.Fprintf(w, "| %s | %d |\n", k, r.done[k])
	}
	fmt.Fprintf(w, "| refused, or not answered, while the API server was away | %d |\n", r.failed)
	r.writeReplays(w)
	r.writeUsage(w)
	if len(r.mismatches) == 0 {
		return
	}
	fmt.Fprint(w, "\n## Mismatches\n")
	for i, m := range r.mismatches {
		if i >= 10 { // in short
			fmt.Fprintf(w, "\n- %s: %s %.300s\n", m.After.Round(time.Millisecond), m.Who, m.What)
			continue
		}
		fmt.Fprintf(w, "\n### %s: %s\n\n%s\n\nThe last fault: %s. Its last events:\n\n", m.After.Round(time.Millisecond), m.Who, m.What, m.Fault)
		for _, e := range m.Events[max(0, len(m.Events)-40):] {
			fmt.Fprintf(w, "    %s\n", e)
		}
	}
}

func (r *Report) writeFaults(w io.Writer) {
	fmt.Fprint(w, "\n## Faults\n\nTime from the end of a fault until a reader had all events up to then.\n\n")
	fmt.Fprint(w, "| fault | times | half of the readers within | 95 % | all | the last was | slow readers |\n|---|--:|--:|--:|--:|---|--:|\n")
	for _, k := range sorted(r.faults) {
		f := r.faults[k]
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s |\n", k, f.times, quantile(f.recovery, .5), quantile(f.recovery, .95), quantile(f.recovery, 1), f.worst, f.slowest.Round(10*time.Millisecond))
	}
}

func (r *Report) writeReplays(w io.Writer) {
	type sum struct {
		n                      int
		events, begun, resumed uint64
		folded                 uint64
	}
	sums := map[string]*sum{}
	for _, p := range r.replays {
		p.mu.Lock()
		s := sums[p.kind]
		if s == nil {
			s = &sum{}
			sums[p.kind] = s
		}
		s.n++
		s.events += p.events
		s.begun += p.reset
		s.resumed += p.resumed
		s.folded += p.folded
		p.mu.Unlock()
	}
	fmt.Fprint(w, "\n## Subscribers\n\n| kind | number | events | started over | resumed | folded events |\n|---|--:|--:|--:|--:|--:|\n")
	for _, k := range sorted(sums) {
		s := sums[k]
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d |\n", k, s.n, s.events, s.begun, s.resumed, s.folded)
	}
	fmt.Fprint(w, "\n| how responses ended | times |\n|---|--:|\n")
	for _, reader := range sorted(r.ends) {
		for _, how := range sorted(r.ends[reader]) {
			fmt.Fprintf(w, "| %s: %s | %d |\n", reader, how, r.ends[reader][how])
		}
	}
}

func (r *Report) writeUsage(w io.Writer) {
	fmt.Fprint(w, "\n## What the processes took\n\nBefore the faults, at most, and once it was over; the heap before and after is without garbage.\n\n")
	fmt.Fprint(w, "| process | heap | heap allowed | resident memory | goroutines | file descriptors | CPU time |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, name := range sorted(r.taken) {
		t := r.taken[name]
		b, p, a := t.before, t.peak, t.after
		heap, limit, goroutines := "", "", ""
		if p.Heap > 0 {
			heap, limit = mbs(b.Heap, p.Heap, a.Heap), mb(r.allowance(t.role).Heap)
			goroutines = fmt.Sprintf("%d / %d / %d", b.Goroutines, p.Goroutines, a.Goroutines)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %d / %d / %d | %.0f s |\n", name, heap, limit, mbs(b.RSS, p.RSS, a.RSS), goroutines, b.FDs, p.FDs, a.FDs, a.CPU)
	}
}

func mbs(before, peak, after uint64) string {
	return fmt.Sprintf("%.1f / %.1f / %.1f MB", float64(before)/1e6, float64(peak)/1e6, float64(after)/1e6)
}

func mb(n uint64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func quantile(of []time.Duration, q float64) string {
	if len(of) == 0 {
		return "–"
	}
	s := slices.Sorted(slices.Values(of))
	i := int(q * float64(len(s)))
	return s[min(i, len(s)-1)].Round(10 * time.Millisecond).String()
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, strings.ReplaceAll(k, "|", "/"))
	}
	sort.Strings(keys)
	return keys
}
