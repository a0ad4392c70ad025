// Command bench measures Tidings beside client-go: the same data, the same
// server, the same run.
//
//	cd test/bench && go run .                    # every line, as one Markdown table
//	cd test/bench && go run . -details           # and everything else that is measured
//	cd test/bench && go run . -line firstsync    # one line, with all of its figures
//	cd test/bench && go run . -line reads,peaks  # some lines
//	cd test/bench && go run . -quick             # does it all work?
//	cd test/bench && go run . -line fanout16 -side tidings -cpuprofile cpu.out
//
// All lines take half an hour on two idle CPUs, and up to 8 GB.
//
// Each measurement runs in its own process, so that neither side inherits the
// other's heap. The sides take turns, so that drifts in the machine's speed affect
// both. A cell is the median of the runs, with the smallest and the largest in
// brackets; a ratio is the median of the ratios of the runs. Data is generated from
// fixed seeds.
//
// A [line] is one measurement with its sides. Its claims are the rows of the table
// and their targets.
package main
