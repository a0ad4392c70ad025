// Command bench measures Tidings beside client-go: the same data, the same
// server, the same run.
//
//	cd bench && go run .                    # every line, as one Markdown table
//	cd bench && go run . -details           # and everything else that is measured
//	cd bench && go run . -line firstsync    # one line, with all of its figures
//	cd bench && go run . -line reads,peaks  # some lines
//	cd bench && go run . -quick             # does it all work?
//	cd bench && go run . -line fanout16 -side tidings -cpuprofile cpu.out
//
// All of it takes half an hour on two quiet processors, and up to 8 GB.
//
// Each measurement is a process of its own, so that neither side inherits the
// other's heap, and the sides take turns, so that a machine whose speed drifts
// treats them alike. A cell is the median of the runs and, in brackets, the
// smallest and the largest; a ratio is the median of the ratios run by run.
// Data is made from fixed seeds.
//
// A [line] is something measured, with its sides; what the table says of it, and
// what that is meant to be, are its claims and stand beside it.
package main
