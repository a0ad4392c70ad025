package churn

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
)

// A Parent is the desired state of an object that a controller works for.
type Parent struct {
	Managed bool // has the label that makes it the controller's
	Value   int  // increases with each change; children depend on it
	Size    int  // 1 to 3; the number of children, unless that is always 1
	Colour  int  // of a label, which children may copy
	Note    int  // of an annotation, which children do not depend on
}

type operation string

// The operations of a plan.
const (
	opApply        operation = "apply"  // create or change the parent
	opDelete       operation = "delete" // delete the parent
	opDeleteChild  operation = "delete a child of"
	opCorruptChild operation = "corrupt a child of" // change it so that the controller must repair it
)

// A step is one API call, or none if it concerns a child that does not exist.
type step struct {
	op   operation
	name string // of the parent
	to   Parent
}

// plan generates random changes of parents and their children. They depend only
// on its seed, not on what a controller does.
type plan struct {
	rng     *rand.Rand
	value   int
	parents map[string]Parent // existing parents
}

func newPlan(seed int64) *plan {
	return &plan{rng: rand.New(rand.NewSource(seed)), parents: map[string]Parent{}}
}

const names = 9 // number of parents

// each chooses n different parents and changes each of them or one of its
// children.
func (p *plan) each(n int) []step {
	var steps []step
	for _, i := range p.rng.Perm(names)[:n] {
		name := nameOf(i)
		if parent, there := p.parents[name]; there && parent.Managed && p.rng.Intn(3) == 0 {
			steps = append(steps, p.child(name))
		} else {
			steps = append(steps, p.parent(name))
		}
	}
	return steps
}

// many makes n changes of parents, children or both.
func (p *plan) many(n int, parents, children bool) []step {
	var steps []step
	for len(steps) < n {
		name := nameOf(p.rng.Intn(names))
		parent, there := p.parents[name]
		switch {
		case children && there && parent.Managed && (!parents || p.rng.Intn(3) == 0):
			steps = append(steps, p.child(name))
		case !parents:
		case there && p.rng.Intn(6) == 0: // deleted and created again
			steps = append(steps, step{op: opDelete, name: name}, p.make(name))
		default:
			steps = append(steps, p.parent(name))
		}
	}
	return steps
}

// all creates or changes every possible parent, and makes it managed.
func (p *plan) all() []step {
	var steps []step
	for i := range names {
		steps = append(steps, p.make(nameOf(i)))
	}
	return steps
}

// number is the number of a child. It is derived from the step, so that it is
// the same in every run.
func (s step) number() int { return s.to.Value }

func (p *plan) child(name string) step {
	return step{op: []operation{opDeleteChild, opCorruptChild}[p.rng.Intn(2)], name: name, to: p.parents[name]}
}

func (p *plan) make(name string) step {
	p.value++
	return p.become(name, Parent{Managed: true, Value: p.value, Size: 1 + p.rng.Intn(3)})
}

func (p *plan) become(name string, parent Parent) step {
	p.parents[name] = parent
	return step{op: opApply, name: name, to: parent}
}

// parent creates the parent if it does not exist, and changes or deletes it
// otherwise.
func (p *plan) parent(name string) step {
	parent, there := p.parents[name]
	if !there {
		return p.make(name)
	}
	p.value++
	switch p.rng.Intn(7) {
	case 0:
		delete(p.parents, name)
		return step{op: opDelete, name: name}
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

// want describes the objects that should exist.
func (p *plan) want(d Driver) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p.parents)) {
		lines = append(lines, d.Expected(name, p.parents[name])...)
	}
	slices.Sort(lines)
	return lines
}
