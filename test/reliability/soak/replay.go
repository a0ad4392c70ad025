package soak

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// truthTimeout limits how long a check waits for etcd's watch to catch up with a
// reader.
const truthTimeout = 20 * time.Second

// replay applies the events of a subscriber and compares the resulting state with the
// truth.
type replay struct {
	name     string
	resource resource
	kind     string // of subscriber, for the report
	slow     bool   // reads slowly, or disconnects for a while

	truth  *truth
	report *Report

	mu      sync.Mutex
	has     map[string]uint64
	log     []string // the last events, for the report
	begun   bool
	broken  bool // a mismatch has been reported; its consequences are not
	checked time.Time
	reports *cursor // at versions that the subscriber has reported
	healed  *cursor // at versions that it should reach
	events  uint64
	reset   uint64
	resumed uint64
	folded  uint64
}

func newReplay(kind, name string, r resource, t *truth, report *Report) *replay {
	p := &replay{kind: kind, name: name, resource: r, truth: t, report: report, has: map[string]uint64{}, reports: t.cursor(r.stored), healed: t.cursor(r.stored)}
	report.follow(p)
	return p
}

func (p *replay) note(format string, args ...any) {
	if len(p.log) >= 200 {
		p.log = append(p.log[:0], p.log[100:]...)
	}
	p.log = append(p.log, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// restart drops the state: the subscriber starts over.
func (p *replay) restart(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("starts over: %s", why)
	clear(p.has)
	p.begun, p.broken = false, false
	p.reset++
}

// resume records that the subscriber resumes after a position.
func (p *replay) resume(position string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("resumes after %s", position)
	p.resumed++
}

// replace replaces the state with a list.
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

// event applies an event of the subscriber. It has to fit the events before: each
// change once and in order.
func (p *replay) event(what, key string, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events++
	p.note("%s %s %d", what, key, version)
	is, there := p.has[key]
	switch what {
	case "ADDED":
		if there {
			p.mismatch("got ADDED for %s at version %d, but had version %d of it", key, version, is)
		}
		p.has[key] = version
	case "MODIFIED":
		if !there {
			p.mismatch("got MODIFIED for %s at version %d, but did not have it", key, version)
		} else if version <= is {
			p.mismatch("got MODIFIED for %s at version %d, but had version %d of it", key, version, is)
		}
		p.has[key] = version
	case "DELETED":
		if !there {
			p.mismatch("got DELETED for %s at version %d, but did not have it", key, version)
		}
		delete(p.has, key)
	default:
		p.mismatch("got an event of type %q for %s", what, key)
	}
}

// synced records that the initial state is complete.
func (p *replay) synced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
}

// reached is called when the subscriber has all events up to a version, and no later
// ones if exact. It compares the state from time to time.
func (p *replay) reached(ctx context.Context, version uint64, exact bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun || p.broken || version == 0 || time.Since(p.checked) < checkEvery {
		return
	}
	p.checked = time.Now()
	patience, cancel := context.WithTimeout(ctx, truthTimeout)
	defer cancel()
	if p.truth.wait(patience, version) != nil {
		if ctx.Err() == nil {
			p.mismatch("is at version %d, which etcd does not have after %s", version, truthTimeout)
		}
		return
	}
	differences, known := p.reports.compare(p.has, version, exact)
	if !known {
		return
	}
	p.report.count("replay = etcd, "+p.kind, 1)
	if len(differences) > 0 {
		p.mismatch("is at version %d, and has not what there was then: %s", version, describe(differences))
	}
}

// covers reports whether the subscriber has all events up to a version, and what is
// missing.
func (p *replay) covers(version uint64) (missing []difference) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		return []difference{{Key: "everything"}}
	}
	missing, _ = p.healed.compare(p.has, version, false)
	return missing
}

// lost reports the differences of a subscriber that should have all events up to a
// version.
func (p *replay) lost(version uint64, after time.Duration, missing []difference) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.broken {
		p.mismatch("has, after %s, not got all changes up to version %d: %s", after.Round(time.Second), version, describe(missing))
	}
}

// mismatch reports a mismatch, but not its consequences up to the next restart. The
// caller holds p.mu.
func (p *replay) mismatch(format string, args ...any) {
	if p.broken {
		return
	}
	p.broken = true
	p.report.mismatch(p.kind+" "+p.name, fmt.Sprintf(format, args...), p.log)
}

// describe formats the first few differences.
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
