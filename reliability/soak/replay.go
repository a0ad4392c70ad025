package soak

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// truthPatience is how long a check waits for etcd to tell what a reader has been
// told already.
const truthPatience = 20 * time.Second

// replay is what a subscriber makes of the events it is told, and whether that is
// the truth.
type replay struct {
	name     string
	resource resource
	kind     string // of subscriber, for the report
	slow     bool   // takes its time

	truth  *truth
	report *Report

	mu      sync.Mutex
	has     map[string]uint64
	log     []string // the last events, for who looks for the cause
	begun   bool
	broken  bool // a mismatch has been reported, what follows from it is not
	checked time.Time
	told    *cursor // of versions that the subscriber says it has come to
	healed  *cursor // of versions that it should come to
	events  uint64
	reset   uint64
	resumed uint64
	folded  uint64
}

func newReplay(kind, name string, r resource, t *truth, report *Report) *replay {
	p := &replay{kind: kind, name: name, resource: r, truth: t, report: report, has: map[string]uint64{}, told: t.cursor(r.stored), healed: t.cursor(r.stored)}
	report.follow(p)
	return p
}

func (p *replay) note(format string, args ...any) {
	if len(p.log) >= 200 {
		p.log = append(p.log[:0], p.log[100:]...)
	}
	p.log = append(p.log, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// restart forgets everything: the subscriber is about to be told it anew.
func (p *replay) restart(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("begins anew: %s", why)
	clear(p.has)
	p.begun, p.broken = false, false
	p.reset++
}

// resume notes that the subscriber goes on behind a position.
func (p *replay) resume(position string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("resumes behind %s", position)
	p.resumed++
}

// replace is a list: it says what there is.
func (p *replay) replace(objects map[string]uint64, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("list of %d objects at %d", len(objects), version)
	clear(p.has)
	for k, v := range objects {
		p.has[k] = v
	}
	p.begun = true
}

// event is told to the subscriber: what is the case now is told once, in order,
// and fits what was told before.
func (p *replay) event(what, key string, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events++
	p.note("%s %s %d", what, key, version)
	is, there := p.has[key]
	switch what {
	case "ADDED":
		if there {
			p.mismatch("was told that %s is new in version %d, and had been told of version %d of it", key, version, is)
		}
		p.has[key] = version
	case "MODIFIED":
		if !there {
			p.mismatch("was told that %s has changed to version %d, and had never been told of it", key, version)
		} else if version <= is {
			p.mismatch("was told that %s has changed to version %d, and had been told of version %d before", key, version, is)
		}
		p.has[key] = version
	case "DELETED":
		if !there {
			p.mismatch("was told that %s is gone at %d, and had never been told of it", key, version)
		}
		delete(p.has, key)
	default:
		p.mismatch("was told an event of type %q about %s", what, key)
	}
}

// synced notes that everything there is has been told.
func (p *replay) synced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
}

// reached is said when the subscriber has been told everything up to a version:
// and nothing else, if exact. It is looked into every so often.
func (p *replay) reached(ctx context.Context, version uint64, exact bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun || p.broken || version == 0 || time.Since(p.checked) < checkEvery {
		return
	}
	p.checked = time.Now()
	patience, cancel := context.WithTimeout(ctx, truthPatience)
	defer cancel()
	if p.truth.wait(patience, version) != nil {
		if ctx.Err() == nil {
			p.mismatch("is at version %d, which etcd does not have after %s", version, truthPatience)
		}
		return
	}
	differences, known := p.told.compare(p.has, version, exact)
	if !known {
		return
	}
	p.report.count("replay = etcd, "+p.kind, 1)
	if len(differences) > 0 {
		p.mismatch("is at version %d, and has not what there was then: %s", version, describe(differences))
	}
}

// covers says whether the subscriber has been told everything up to a version,
// and if not what is missing.
func (p *replay) covers(version uint64) (missing []difference) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		return []difference{{Key: "everything"}}
	}
	missing, _ = p.healed.compare(p.has, version, false)
	return missing
}

// lost reports what a subscriber that should have been told everything up to a
// version has not been told.
func (p *replay) lost(version uint64, after time.Duration, missing []difference) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.broken {
		p.mismatch("has, after %s, not been told all that happened up to version %d: %s", after.Round(time.Second), version, describe(missing))
	}
}

// mismatch reports what is not the truth, once for each beginning: what follows
// from it would be reported over and over. p.mu is held.
func (p *replay) mismatch(format string, args ...any) {
	if p.broken {
		return
	}
	p.broken = true
	p.report.mismatch(p.kind+" "+p.name, fmt.Sprintf(format, args...), p.log)
}

// describe says what is different, the first few of it.
func describe(differences []difference) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d objects", len(differences))
	for i, d := range differences {
		if i == 5 {
			b.WriteString("; …")
			break
		}
		fmt.Fprintf(&b, "; %s: has %s, is %s", d.Key, versionOr(d.Has), versionOr(d.Should))
		for j, e := range d.Events {
			if j == 0 {
				b.WriteString(" (etcd:")
			}
			if e.gone {
				fmt.Fprintf(&b, " gone at %d", e.version)
			} else {
				fmt.Fprintf(&b, " %d", e.version)
			}
		}
		if len(d.Events) > 0 {
			b.WriteString(")")
		}
	}
	return b.String()
}

func versionOr(v uint64) string {
	if v == 0 {
		return "none"
	}
	return fmt.Sprint(v)
}
