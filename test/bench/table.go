package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
)

// printTable writes the claims of all lines as one Markdown table, in the order
// of their numbers. Lines that were not measured have rows that say so.
func printTable(w io.Writer, lines []line, measured map[string]results, runs int) {
	type row struct {
		claim
		of line
	}
	var rows []row
	for _, l := range lines {
		for _, c := range l.claims {
			rows = append(rows, row{c, l})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.number - b.number })
	fmt.Fprint(w, "| # | what | client-go | Tidings | ratio | target | |\n|---:|---|---:|---:|---:|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %d | %s | %s |\n", r.number, r.what, strings.Join(r.of.judge(r.claim, measured[r.of.name]), " | "))
	}
	fmt.Fprintf(w, "\nMedians of %d runs each, which take turns, with the smallest and the largest in brackets; ratios run by run. %s, %d CPUs.\n",
		runs, runtime.Version(), runtime.NumCPU())
}

// judge makes the cells of a claim: the peer's figure, ours, their ratio, the
// target, and whether it is met.
func (l line) judge(c claim, got results) []string {
	target, verdict := "–", ""
	if c.target.met != nil {
		target, verdict = c.target.text, "not measured"
	}
	ours, theirs, ratios := l.compare(c, got)
	if len(ours) == 0 {
		return []string{"–", "–", "–", target, verdict}
	}
	if c.target.met != nil {
		verdict = "**missed**"
		if c.target.met(median(ours), median(ratios)) {
			verdict = "met"
		}
	}
	return []string{spread(theirs), spread(ours), spread(ratios), target, verdict}
}

// compare returns the figures of a claim, run by run. A side that does not have
// the figure has no values.
func (l line) compare(c claim, got results) (ours, theirs, ratios []float64) {
	peer := c.peer
	if peer == "" {
		peer = l.sides[0].name
	}
	for i, f := range got[c.side] {
		value, ok := f[c.figure]
		if !ok {
			continue
		}
		ours = append(ours, value)
		if peer == nobody || i >= len(got[peer]) { // with -side, there are no others
			continue
		}
		if base, ok := got[peer][i][c.figure]; ok {
			theirs = append(theirs, base)
			ratios = append(ratios, value/base)
		}
	}
	return ours, theirs, ratios
}

// printDetails writes everything that was measured of a line.
func (l line) printDetails(w io.Writer, got results) {
	base := got[l.sides[0].name]
	var names []string
	for _, runs := range got {
		for name := range runs[0] {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	fmt.Fprintf(w, "\n**%s** (%d runs each, %s, %d CPUs)\n\n", fmt.Sprintf(l.what, l.size), len(base), runtime.Version(), runtime.NumCPU())
	fmt.Fprint(w, "| |")
	for _, name := range names {
		fmt.Fprintf(w, " %s | ratio |", name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---:|---:|", len(names)))
	for _, s := range l.sides {
		fmt.Fprintf(w, "| %s |", s.name)
		for _, name := range names {
			ours, _, ratios := l.compare(claim{figure: name, side: s.name}, got)
			fmt.Fprintf(w, " %s | %s |", spread(ours), spread(ratios))
		}
		fmt.Fprintln(w)
	}
}

// spread is a median with the smallest and the largest value.
func spread(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	middle := median(values)
	if len(values) == 1 {
		return number(middle)
	}
	return fmt.Sprintf("%s (%s–%s)", number(middle), number(slices.Min(values)), number(slices.Max(values)))
}

// number writes three digits of a value, or all that are in front of the point.
func number(value float64) string {
	if math.Abs(value) >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

// median is the middle value, or the upper one of two. NaN if there is none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
