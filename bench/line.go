package main

import (
	"context"
	"fmt"
)

// line is one thing measured, for every side.
type line struct {
	name string
	// what is measured, with %d for the size.
	what string
	// size is the number of objects, or of events; quick is one that shows in
	// no time that all works.
	size, quick int
	// sides in the order of the table; the first is the one others are
	// compared with.
	sides []side
	// setup prepares what all runs share and returns what their processes need
	// to know of it. nil prepares nothing.
	setup func(ctx context.Context, size int) (env []string, teardown func() error, err error)
	// claims are what the table says of the line.
	claims []claim
}

// side is one contender.
type side struct {
	name string
	run  func(ctx context.Context, size int) (figures, error)
}

// figures are what a run measured, by name and unit.
type figures map[string]float64

// claim is one row of the table: a figure of one side beside that of another,
// and what it is meant to be.
type claim struct {
	number int
	what   string // with the unit
	figure string
	side   string
	peer   string // empty for the line's first
	target target
}

// nobody is the peer of a claim that only stands for itself.
const nobody = "nobody"

// target is what a figure is meant to be. The zero value is no target: the row
// is there to be known.
type target struct {
	text string
	met  func(value, ratio float64) bool
}

// timesAtLeast and timesAtMost are targets for the ratio to the peer.
func timesAtLeast(bound float64) target {
	return target{fmt.Sprintf("≥ %v×", bound), func(_, ratio float64) bool { return ratio >= bound }}
}

func timesAtMost(bound float64) target {
	return target{fmt.Sprintf("≤ %v×", bound), func(_, ratio float64) bool { return ratio <= bound }}
}

// atLeast and atMost are targets for the figure itself.
func atLeast(bound float64) target {
	return target{fmt.Sprintf("≥ %v", bound), func(value, _ float64) bool { return value >= bound }}
}

func atMost(bound float64) target {
	return target{fmt.Sprintf("≤ %v", bound), func(value, _ float64) bool { return value <= bound }}
}
