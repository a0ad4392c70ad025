// Command bench measures Tidings beside client-go: the same data, the same
// server, the same run.
//
//	cd bench && go run .                    # every line, as a Markdown table
//	cd bench && go run . -line firstsync    # one line
//
// Each measurement is a process of its own, so that neither side inherits the
// other's heap, and the sides take turns, so that a machine whose speed drifts
// treats them alike. A cell is the median of the runs and, in brackets, the
// smallest and the largest; a ratio is the median of the ratios run by run.
package main
