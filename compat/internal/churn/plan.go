package churn

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
)

// A Parent is an object that a controller works for, as the test wants it.
type Parent struct {
	Managed bool // whether its labels say that it is the controller's
	Value   int  // greater than all that there were before: its children depend on it
	Size    int  // 1 to 3: so do their number, if that is not always 1
	Colour  int  // of a label: children may have it too
	Note    int  // of an annotation, which is nothing to children
}

type deed string

// The deeds that a plan is made of.
const (
	apply   deed = "apply"   // make the parent, or change it
	destroy deed = "destroy" // delete the parent
	kill    deed = "kill"    // delete a child
	spoil   deed = "spoil"   // change a child
)

// A step is one call of the API, or none if it is about a child that is not
// there.
type step struct {
	deed deed
	name string // of the parent
	to   Parent
}

// plan throws dice over parents and their children. What it does depends on its
// seed alone, not on what a controller makes of it.
type plan struct {
	dice    *rand.Rand
	value   int
	parents map[string]Parent // that are there
}

func newPlan(seed int64) *plan {
	return &plan{dice: rand.New(rand.NewSource(seed)), parents: map[string]Parent{}}
}

const names = 9 // of parents

// each takes n parents, no one twice, and does one thing with each of them or
// with a child of it.
func (p *plan) each(n int) []step {
	var steps []step
	for _, i := range p.dice.Perm(names)[:n] {
		name := nameOf(i)
		if parent, there := p.parents[name]; there && parent.Managed && p.dice.Intn(3) == 0 {
			steps = append(steps, p.child(name))
		} else {
			steps = append(steps, p.parent(name))
		}
	}
	return steps
}

// many does n things with parents, children or both.
func (p *plan) many(n int, parents, children bool) []step {
	var steps []step
	for len(steps) < n {
		name := nameOf(p.dice.Intn(names))
		parent, there := p.parents[name]
		switch {
		case children && there && parent.Managed && (!parents || p.dice.Intn(3) == 0):
			steps = append(steps, p.child(name))
		case !parents:
		case there && p.dice.Intn(6) == 0: // made anew under its name
			steps = append(steps, step{deed: destroy, name: name}, p.make(name))
		default:
			steps = append(steps, p.parent(name))
		}
	}
	return steps
}

// all makes and manages what is left out: every parent there can be.
func (p *plan) all() []step {
	var steps []step
	for i := range names {
		steps = append(steps, p.make(nameOf(i)))
	}
	return steps
}

// number is a child's, chosen by the step, so that it is the same in every run.
func (s step) number() int { return s.to.Value }

func (p *plan) child(name string) step {
	return step{deed: []deed{kill, spoil}[p.dice.Intn(2)], name: name, to: p.parents[name]}
}

func (p *plan) make(name string) step {
	p.value++
	return p.become(name, Parent{Managed: true, Value: p.value, Size: 1 + p.dice.Intn(3)})
}

func (p *plan) become(name string, parent Parent) step {
	p.parents[name] = parent
	return step{deed: apply, name: name, to: parent}
}

// parent makes the parent if it is not there, or else changes or deletes it.
func (p *plan) parent(name string) step {
	parent, there := p.parents[name]
	if !there {
		return p.make(name)
	}
	p.value++
	switch p.dice.Intn(7) {
	case 0:
		delete(p.parents, name)
		return step{deed: destroy, name: name}
	case 1:
		parent.Managed = !parent.Managed
	case 2:
		parent.Size = 1 + parent.Size%3
	case 3:
		parent.Colour = p.value
	case 4:
		parent.Note = p.value
	default:
		parent.Value = p.value
	}
	return p.become(name, parent)
}

func nameOf(i int) string { return fmt.Sprint("p", i) }

// want is what a family should have.
func (p *plan) want(f Family) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p.parents)) {
		lines = append(lines, f.Want(name, p.parents[name])...)
	}
	slices.Sort(lines)
	return lines
}
