package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// replay is the store of somebody who is told events and does as they say, and
// notes what must not happen: what comes twice, out of order, or of nowhere.
type replay struct {
	name string

	mu     sync.Mutex
	state  map[string]string   // name → version
	told   map[string][]string // name → versions, "gone" for deletions
	wrong  []string
	events int
	again  int // times that everything was told anew
	synced bool
	older  bool // versions may go back: the cluster was restored
}

func newReplay(name string) *replay {
	return &replay{name: name, state: map[string]string{}, told: map[string][]string{}}
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
		p.told[name] = append(p.told[name], "gone")
		return
	}
	p.state[name] = version
	p.told[name] = append(p.told[name], version)
}

// reset is told that everything comes anew.
func (p *replay) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced { // else it is the first time, or a part of it
		p.again++
	}
	clear(p.state)
	clear(p.told)
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
	return tell(p.state)
}

func tell(state map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(state)) {
		out = append(out, name+"@"+state[name])
	}
	return strings.Join(out, " ")
}

// check says what was wrong with what was told: something that must not happen,
// or, if nothing was listed again, a change that was left out. whole says that
// everything in history was to be told; else its end.
func (p *replay) check(history map[string][]string, unsure map[string]bool, relisted, whole bool) (wrong []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wrong = slices.Clone(p.wrong)
	if relisted || p.again > 0 {
		return wrong // what was listed has skipped what was in between
	}
	for name, happened := range history {
		told := p.told[name]
		if unsure[name] || whole && slices.Equal(told, happened) {
			continue
		}
		if n := len(happened) - len(told); whole || n < 0 || !slices.Equal(told, happened[n:]) {
			wrong = append(wrong, fmt.Sprintf("%s: happened %v, told %v", name, happened, told))
		}
	}
	return wrong
}
