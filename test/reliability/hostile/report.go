package hostile

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxGroups is the default number of groups of findings to print.
const MaxGroups = 30

// group is a group of similar findings.
type group struct {
	kind         kind
	method       string
	ours, theirs int
	callers      map[string]int
	shapes       map[string]int
	count        int
	size         int // of the example
	example      string
	detail       string
	bodies       [2]string
}

// Report is the result of a run.
type Report struct {
	Seed uint64
	Took time.Duration
	// Requests made to mirrors, and to the API server.
	Requests, Compared int
	// Statuses of the mirrors' answers.
	Statuses map[int]int

	mu     sync.Mutex
	groups map[string]*group
}

func newReport(seed uint64) *Report {
	return &Report{Seed: seed, Statuses: map[int]int{}, groups: map[string]*group{}}
}

// Findings returns the number of groups of findings.
func (r *Report) Findings() int { return len(r.groups) }

func (r *Report) count(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Requests++
	if x.asked {
		r.Compared++
	}
	r.Statuses[x.ours.status]++
}

// known reports whether there are enough findings like that of the exchange.
func (r *Report) known(x *exchange, f finding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[keyOf(x, f)]
	return g != nil && g.count >= 3
}

func keyOf(x *exchange, f finding) string {
	about := f.about
	if f.kind >= otherObjects && x.ours.status < 300 != (x.theirs.status < 300) {
		about += x.q.form // the answer has no reason
	}
	return fmt.Sprint(f.kind, x.q.method, x.ours.status, x.theirs.status, about, "\n", x.ours.gist(), "\n", x.theirs.gist())
}

var (
	message = regexp.MustCompile(`"(?:message|error)":"((?:[^"\\]|\\.)*)"`)
	subject = regexp.MustCompile(`^.*? is forbidden`)
	missing = regexp.MustCompile(`^\S+ \S+ not found`)
	varying = regexp.MustCompile(`\\"(?:[^"\\]|\\\\.)*\\"|[0-9]+|/\S*`)
	denied  = regexp.MustCompile(`cannot \S+ (path|resource).*`)
)

// gist returns the message of an answer without the parts of a single request.
func (a *answer) gist() string {
	m := message.FindSubmatch(a.body[:min(len(a.body), 20000)])
	switch {
	case a.status < 300:
		return ""
	case m == nil:
		return varying.ReplaceAllString(first(a.body), "")
	}
	s := missing.ReplaceAllString(varying.ReplaceAllString(string(m[1]), "…"), "it is not found")
	return denied.ReplaceAllString(subject.ReplaceAllString(s, "it is forbidden"), "cannot read it")
}

func (r *Report) add(x *exchange, f finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := keyOf(x, f)
	g := r.groups[key]
	if g == nil {
		g = &group{kind: f.kind, method: x.q.method, ours: x.ours.status, theirs: x.theirs.status, callers: map[string]int{}, shapes: map[string]int{}}
		r.groups[key] = g
	}
	g.count++
	g.callers[x.caller.name+" at "+x.mirror.name]++
	g.shapes[x.q.shape()]++
	example := x.q.curl(x.caller, x.caller.authorization())
	if g.example == "" || len(example) < g.size {
		g.size, g.example, g.detail = len(example), example, f.detail
		g.bodies = [2]string{first(x.ours.body), first(x.theirs.body)}
	}
}

// sorted returns the groups, the worst and most frequent first.
func (r *Report) sorted() []*group {
	return slices.SortedFunc(maps.Values(r.groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), -cmp.Compare(a.count, b.count), strings.Compare(a.example, b.example))
	})
}

// Write prints up to most groups of findings.
func (r *Report) Write(w io.Writer, most int) {
	fmt.Fprintf(w, "%d requests in %s (%.0f a second), %d of them compared with the API server's answer; seed %d\nstatuses:",
		r.Requests, r.Took.Round(time.Second), float64(r.Requests+r.Compared)/r.Took.Seconds(), r.Compared, r.Seed)
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		fmt.Fprintf(w, " %d: %d", status, r.Statuses[status])
	}
	fmt.Fprintln(w)
	groups := r.sorted()
	for i, g := range groups {
		if i == most {
			fmt.Fprintf(w, "\n… and %d more groups\n", len(groups)-most)
			break
		}
		fmt.Fprintf(w, "\n%s: %s: %d", g.kind, g.method, g.ours)
		if g.theirs != 0 {
			fmt.Fprintf(w, ", and %d of the API server", g.theirs)
		}
		fmt.Fprintf(w, " (%d times)\n", g.count)
		if g.detail != "" {
			fmt.Fprintf(w, "  %s\n", g.detail)
		}
		fmt.Fprintf(w, "  %s\n  %s\n  by %s\n  answered: %s\n", g.example, often(g.shapes, 4), often(g.callers, 4), g.bodies[0])
		if g.theirs != 0 {
			fmt.Fprintf(w, "  API server: %s\n", g.bodies[1])
		}
	}
}

// often returns the most frequent ones.
func often(of map[string]int, most int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(-cmp.Compare(of[a], of[b]), strings.Compare(a, b)) })
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(of)-most))
	}
	return strings.Join(names, "; ")
}
