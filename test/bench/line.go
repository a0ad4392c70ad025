package main

import (
	"context"
	"fmt"
)

// line is one measurement of every side.
type line struct {
	name string
	// what is measured, with %d for the size.
	what string
	// size is the number of objects, or of events; quick is a small one for tests.
	size, quick int
	// sides in the order of the table; the others are compared with the first.
	sides []side
	// setup, if not nil, prepares what all runs share and returns the environment
	// of their processes.
	setup func(ctx context.Context, size int) (env []string, teardown func() error, err error)
	// claims are the line's rows in the table.
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
// and its target.
type claim struct {
	number int
	what   string // with the unit
	figure string
	side   string
	peer   string // empty for the line's first
	target target
}

// nobody is the peer of a claim without a comparison.
const nobody = "nobody"

// target is the goal for a figure. The zero value is no target.
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
