package matrix

import (
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tidings-io/tidings/informer"
)

// row is a fault and when it comes.
type row struct {
	Fault string
	While informer.Phase // Listing: it is there from the start; Watching
	// Inject begins the fault on one line; With does on all of them.
	Inject func(*line) injected
	With   func(*rig) injected
	// Errors is how many requests are to fail before the fault is over; 0: one
	// if there is an Error.
	Errors uint64
	// Error is what the last error says, as a regular expression, and none if
	// it is empty.
	Error string
	// Shows is shown instead, where it is one of several things by chance.
	Shows string
	// Reads is what a reader is to get in the end while the fault is there; empty:
	// what he gets first is shown.
	Reads string
	// Waits is a phase that is to be seen before the fault is over.
	Waits informer.Phase

	Own      string // its control plane is only used by rows that say the same here, one at a time
	Restores bool   // versions may go back
	Forgets  bool   // it is the API server's business whether it still knows the last version, or all is listed again
	Custom   bool   // is about a custom resource
	Perhaps  string // a counter that grows or does not, by chance
	SetUp    func(*rig)
	Options  []informer.Option
	Patience time.Duration // until all is well again; 0: a minute
	Busy     int           // requests that there may be besides the usual ones
	Most     int64         // requests that there may be at most; 0: eight, and three for every second
}

func (r *row) name() string { return r.Fault + "/" + string(r.While) }

// injected is a fault that has begun.
type injected struct {
	heal func()      // ends it; nil: it is over by itself
	hit  func() bool // it has had an effect; nil: it has
	none bool        // the line makes no request that the fault could hit
}

// seen is what came of a row.
type seen struct {
	phase, err, log, counters, reads string
	recovered                        []time.Duration
	requests                         int64
}

func TestMatrix(t *testing.T) {
	var mu sync.Mutex
	results := map[string][]seen{}
	planes.TB = t
	t.Run("row", func(t *testing.T) {
		for run := range *runs {
			for _, row := range slices.Concat(clusterRows, rows[:len(rows)-len(clusterRows)]) { // those that take longest first
				t.Run(row.name(), func(t *testing.T) {
					t.Parallel()
					if row.Own != "" {
						defer planes.lock(row.Own)()
					}
					s := row.run(t, run)
					mu.Lock()
					defer mu.Unlock()
					results[row.name()] = append(results[row.name()], s)
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	compare(t, results)
}

func (row *row) run(t *testing.T, run int) (out seen) {
	r := newRig(t, row)
	watching := row.While == informer.Watching
	for i := range 8 {
		r.churn.mustWrite(fmt.Sprint("o", i))
	}
	r.churn.mustWrite("seed")
	begin := func() {
		for _, l := range r.lines {
			l.start()
		}
	}
	stir := func() {
		hash := fnv.New64()
		_, _ = hash.Write([]byte(row.name()))
		r.churn.begin(hash.Sum64() + uint64(run))
	}
	defer r.churn.end()
	defer func() {
		if t.Failed() {
			for _, l := range r.lines {
				t.Logf("%s: %+v\n%.20000s", l.name, l.status(), l.log)
			}
		}
	}()
	if watching {
		begin()
		r.await("everybody has been told what there is", func(p *replay) bool { return p.synced })
		for _, l := range r.lines {
			l.began = time.Now()
		}
		stir()
		r.await("everybody is told of changes", func(p *replay) bool { return p.events > 14 })
	}
	before := make([]mark, len(r.lines))
	for i, l := range r.lines {
		before[i] = l.mark()
	}
	var all injected
	if row.With != nil {
		all = row.With(r)
	}
	faults := make([]injected, len(r.lines))
	for i, l := range r.lines {
		if row.Inject != nil {
			faults[i] = row.Inject(l)
		}
	}
	if !watching {
		begin()
		stir()
	}
	patience := row.Patience
	if patience == 0 {
		patience = time.Minute
	}
	errors := row.Errors
	if errors == 0 && row.Error != "" && row.Waits == "" {
		errors = 1
	}
	wanted := regexp.MustCompile(row.Error)
	for i, l := range r.lines {
		if faults[i].none {
			continue
		}
		wait := errors
		looked := l.name == "server" && !watching // it may not come further than to look the resource up
		if looked || l.name == "server" && row.Waits != "" {
			wait = 0
		}
		eventually(t, patience, l.name+" feels the fault", func() bool {
			if faults[i].hit != nil && !faults[i].hit() || wait > 0 && l.status().Errors < before[i].errors+wait {
				return false
			}
			if looked && row.Error != "" && l.status().LastError == nil {
				return false
			}
			if l.name == "library" && row.Error != "" && !slices.ContainsFunc(l.states(before[i].states), func(s informer.Status) bool {
				return s.LastError != nil && wanted.MatchString(s.LastError.Error())
			}) {
				return false
			}
			return row.Waits == "" || l.name != "library" || slices.ContainsFunc(l.states(before[i].states), func(s informer.Status) bool { return s.Phase == row.Waits })
		})
	}
	if all.hit != nil {
		eventually(t, patience, "the fault is felt", all.hit)
	}
	if watching || row.Errors > 0 || row.Waits != "" { // or it is over already
		eventually(t, patience, "a reader gets what he is to get", func() bool {
			out.reads = r.lines[1].reads()
			return row.Reads == "" || out.reads == row.Reads
		})
	}
	r.churn.delete("seed") // which only a list tells those who have none open
	grown := r.lines[1].counters()
	if all.heal != nil {
		all.heal()
	}
	var mends sync.WaitGroup
	took := make([]time.Duration, len(r.lines))
	for i, l := range r.lines {
		mends.Go(func() {
			if faults[i].heal != nil {
				faults[i].heal()
			}
			over := time.Now()
			version := r.churn.mustWrite("sentinel")
			for number(l.version("sentinel")) < number(version) {
				if took[i] = time.Since(over); took[i] > patience {
					t.Errorf("%s: what was written after the fault has not come within %v; it is %+v", l.name, patience, l.status())
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			took[i] = time.Since(over)
		})
	}
	mends.Wait()
	if t.Failed() {
		t.FailNow()
	}
	out.recovered = took
	for i, l := range r.lines {
		n := l.requests.Load() - before[i].requests
		limit := row.Most
		if limit == 0 {
			limit = 10 + int64(row.Busy) + 4*int64(time.Since(before[i].at).Seconds()) // one of them asks whether the API server is back
		}
		if n > limit {
			t.Errorf("%s: %d requests since the fault began, more than %d", l.name, n, limit)
		}
		out.requests = max(out.requests, n)
	}
	// More happens, and then nothing: everybody has what the API server has.
	r.await("changes come again", func(p *replay) bool { return p.at("sentinel") != "" })
	r.churn.halt(true)
	version := r.churn.mustWrite("end")
	r.await("the last change comes", func(p *replay) bool { return number(p.at("end")) >= number(version) })
	r.verify(before, watching)
	r.describe(&out, before, grown)
	t.Logf("%+v", out)
	return out
}

// mark is where a line was before the fault.
type mark struct {
	at             time.Time
	errors, lists  uint64
	states, logged int
	requests       int64
	counters       map[string]float64
}

func (l *line) mark() mark {
	s := l.status()
	l.mu.Lock()
	states := len(l.seen)
	l.mu.Unlock()
	return mark{time.Now(), s.Errors, s.Lists, states, l.log.len(), l.requests.Load(), l.counters()}
}

// counters are the counters of the line's metrics.
func (l *line) counters() map[string]float64 {
	if l.metrics == nil || l.ctx.Err() != nil || l.replays == nil {
		return nil
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(l.metrics()))
	l.must(err)
	out := map[string]float64{}
	for _, name := range []string{"tidings_informer_errors_total", "tidings_informer_relists_total"} {
		for _, m := range families[name].GetMetric() {
			out[name] += m.GetCounter().GetValue()
		}
	}
	return out
}

func (r *rig) await(what string, ok func(*replay) bool) {
	r.Helper()
	for _, l := range r.lines {
		for _, p := range l.replays {
			deadline := time.Now().Add(time.Minute)
			for {
				p.mu.Lock()
				state := p.events
				p.mu.Unlock()
				if done(p, ok) {
					break
				}
				if time.Now().After(deadline) {
					r.Fatalf("%s, %s: it did not come to be that %s; %d events, state %s", l.name, p.name, what, state, p)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
}

// done asks about a replay whose lock need not be taken by who asks.
func done(p *replay, ok func(*replay) bool) bool {
	p.mu.Lock()
	copied := &replay{state: maps.Clone(p.state), synced: p.synced, events: p.events}
	p.mu.Unlock()
	return ok(copied)
}

// verify compares what everybody has with what the API server has and with what
// was written.
func (r *rig) verify(before []mark, watching bool) {
	r.Helper()
	versions, objects := r.truth()
	r.churn.mu.Lock()
	history, unsure := maps.Clone(r.churn.history), maps.Clone(r.churn.unsure)
	r.churn.mu.Unlock()
	for i, l := range r.lines {
		have := l.objects()
		for name := range objects {
			if have[name] != objects[name] {
				r.Errorf("%s: %s is\n%s\ninstead of\n%s", l.name, name, have[name], objects[name])
			}
		}
		if len(have) != len(objects) {
			r.Errorf("%s: %d objects instead of %d", l.name, len(have), len(objects))
		}
		relisted := l.status().Lists > max(before[i].lists, 1) || l.status().Lists < before[i].lists || r.row.Restores || r.row.Custom
		for _, p := range l.replays {
			if !p.is(versions) {
				r.Errorf("%s, %s: the replay is\n%s\ninstead of\n%s", l.name, p.name, p, formatState(versions))
			}
			for _, wrong := range p.check(history, unsure, relisted, watching) {
				r.Errorf("%s, %s: %s", l.name, p.name, wrong)
			}
		}
		r.noSecrets(l.name+"'s log", l.log.String())
		for _, s := range l.states(0) {
			r.noSecrets(l.name+"'s error", fmt.Sprint(s.LastError))
		}
	}
	r.noSecrets("metrics", r.lines[1].metrics())
}

// noSecrets says that credentials are nowhere to be read.
func (r *rig) noSecrets(where, text string) {
	r.Helper()
	if i := strings.Index(text, r.upstream.BearerToken); r.upstream.BearerToken != "" && i >= 0 {
		r.Errorf("%s tells a token: …%.300s", where, text[max(0, i-200):])
	}
}

var severity = []informer.Phase{informer.Watching, informer.Listing, informer.Waiting, informer.Denied, informer.Gone, informer.Refused}

// describe says what a user has seen.
func (r *rig) describe(out *seen, before []mark, grown map[string]float64) {
	library, after := r.lines[0], r.lines[1].counters()
	states := library.states(before[0].states)
	if library.states(0) != nil && before[0].states == 0 {
		states = library.states(0)
	}
	worst := 0
	if before[0].states == 0 || library.status().Lists > before[0].lists && !r.row.Forgets {
		worst = slices.Index(severity, informer.Listing) // which may be over too soon to be seen
	}
	var last string
	want := regexp.MustCompile(r.row.Error)
	for _, s := range states {
		if r.row.Forgets && s.Phase == informer.Listing {
			continue
		}
		worst = max(worst, slices.Index(severity, s.Phase))
		if s.LastError == nil {
			continue
		}
		if r.row.Error == "" {
			r.Errorf("an error: %v", s.LastError)
			continue
		}
		last = s.LastError.Error()
		if found := want.FindString(last); found != "" && out.err == "" {
			out.err = found
		}
	}
	if r.row.Error != "" && out.err == "" {
		r.Errorf("no error says %q; the last is %s", r.row.Error, last)
	}
	if out.err != "" && r.row.Shows != "" {
		out.err = r.row.Shows
	}
	out.phase = string(severity[worst])
	logged := library.log.since(before[0].logged)
	var counters []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if max(after[name], grown[name]) > before[1].counters[name] {
			counters = append(counters, strings.TrimPrefix(name, "tidings_"))
		}
	}
	if r.row.Forgets {
		again := []string{"INFO the watch has expired; listing again", "INFO listed again"}
		logged = slices.DeleteFunc(logged, func(line string) bool { return slices.Contains(again, line) })
		logged = append(logged, "if all is listed again "+strings.Join(again, ", "))
		counters = slices.DeleteFunc(counters, func(name string) bool { return name == "informer_relists_total" })
		counters = append(counters, "if all is listed again informer_relists_total")
	}
	if r.row.Perhaps != "" {
		counters = slices.DeleteFunc(counters, func(name string) bool { return name == r.row.Perhaps })
		counters = append(counters, "perhaps "+r.row.Perhaps)
	}
	out.log, out.counters = strings.Join(logged, ", "), strings.Join(counters, ", ")
}
