package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// lines are measured in this order.
var lines = []line{
	fanOut(1, 5), fanOut(4, 12), fanOut(16, 35),
	latency,
	watchStream,
	firstSync,
	replaySync,
	peaks,
	reads,
	contention,
	growth,
	million,
	serve,
	serveLabel,
	serveWatch,
	coldStart,
	warmStart,
	historyWrites,
	historyReads,
	fleetLine,
}

func main() {
	var o options
	flag.StringVar(&o.only, "line", "", "measure only the `lines` with these names, separated by commas; of a single one everything that is measured is printed")
	flag.BoolVar(&o.details, "details", false, "after the table, print everything that was measured")
	flag.BoolVar(&o.quick, "quick", false, "few objects and one run: shows that all works, and nothing else")
	flag.IntVar(&o.runs, "runs", 5, "measure each side this many times")
	flag.IntVar(&o.size, "size", 0, "number of objects instead of the line's own")
	flag.StringVar(&o.side, "side", "", "with -line, measure only this `side`")
	flag.StringVar(&o.profile, "cpuprofile", "", "with -side, write a CPU profile of the last run to this `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.bench(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	only, side     string
	profile        string
	runs, size     int
	quick, details bool
}

func (o options) bench(ctx context.Context) error {
	chosen := slices.Clone(lines)
	if o.only != "" {
		only := strings.Split(o.only, ",")
		chosen = slices.DeleteFunc(chosen, func(l line) bool { return !slices.Contains(only, l.name) })
	}
	if len(chosen) == 0 {
		var names []string
		for _, l := range lines {
			names = append(names, l.name)
		}
		return fmt.Errorf("there is no line %q, but %s", o.only, strings.Join(names, ", "))
	}
	if o.quick {
		o.runs = 1
	}
	measured := map[string]results{}
	var failed []error
	for i := range chosen {
		l := &chosen[i]
		if o.quick {
			l.size = l.quick
		}
		if o.size > 0 {
			l.size = o.size
		}
		if os.Getenv(inChild) != "" {
			return l.child(ctx, o.side, o.profile)
		}
		if o.side != "" {
			l.sides = slices.DeleteFunc(slices.Clone(l.sides), func(s side) bool { return s.name != o.side })
		}
		got, err := l.measure(ctx, o.runs, o.profile)
		if err != nil {
			// The others are measured nevertheless: all of them take long.
			progress("bench: %v", err)
			failed = append(failed, err)
			continue
		}
		measured[l.name] = got
	}
	printTable(os.Stdout, chosen, measured, o.runs)
	if len(chosen) == 1 || o.details {
		for _, l := range chosen {
			if got := measured[l.name]; got != nil {
				l.printDetails(os.Stdout, got)
			}
		}
	}
	return errors.Join(failed...)
}
