package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// replay applies the events of a subscriber, and records errors: events that are
// doubled, out of order, or do not fit the state.
type replay struct {
	name string

	mu     sync.Mutex
	state  map[string]string   // name → version
	got    map[string][]string // name → versions, "gone" for deletions
	wrong  []string
	events int
	again  int // times that the state was sent again
	synced bool
	older  bool // versions may go back: the cluster was restored
}

func newReplay(name string) *replay {
	return &replay{name: name, state: map[string]string{}, got: map[string][]string{}}
}

// event takes in ADDED, MODIFIED, DELETED, or SYNCED.
func (p *replay) event(kind, name, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, there := p.state[name]
	bad := func(format string, args ...any) {
		p.wrong = append(p.wrong, fmt.Sprintf("%s %s@%s: ", kind, name, version)+fmt.Sprintf(format, args...))
	}
	switch kind {
	case "SYNCED":
		p.synced = true
		return
	case "ADDED":
		if there {
			bad("it is there already, at %s", have)
		}
	case "MODIFIED":
		if !there {
			bad("it is not there")
		}
	case "DELETED":
		if !there {
			bad("it is not there")
		}
	}
	if there && !p.older && number(version) <= number(have) && kind != "DELETED" {
		bad("it was at %s before", have)
	}
	p.events++
	if kind == "DELETED" {
		delete(p.state, name)
		p.got[name] = append(p.got[name], "gone")
		return
	}
	p.state[name] = version
	p.got[name] = append(p.got[name], version)
}

// reset is told that everything comes anew.
func (p *replay) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced { // else it is the first time, or a part of it
		p.again++
	}
	clear(p.state)
	clear(p.got)
}

func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// at returns the version of an object.
func (p *replay) at(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state[name]
}

// is says that this is the state.
func (p *replay) is(want map[string]string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Equal(p.state, want)
}

func (p *replay) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return formatState(p.state)
}

func formatState(state map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(state)) {
		out = append(out, name+"@"+state[name])
	}
	return strings.Join(out, " ")
}

// check returns the recorded errors and, if nothing was listed again, missing changes.
// With whole the subscriber must have got all of history, otherwise its end.
func (p *replay) check(history map[string][]string, unsure map[string]bool, relisted, whole bool) (wrong []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wrong = slices.Clone(p.wrong)
	if relisted || p.again > 0 {
		return wrong // lists skip the changes in between
	}
	for name, happened := range history {
		got := p.got[name]
		if unsure[name] || whole && slices.Equal(got, happened) {
			continue
		}
		if n := len(happened) - len(got); whole || n < 0 || !slices.Equal(got, happened[n:]) {
			wrong = append(wrong, fmt.Sprintf("%s: happened %v, got %v", name, happened, got))
		}
	}
	return wrong
}
