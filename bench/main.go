package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// line is one row of the table: one thing measured, for every side.
type line struct {
	name string
	// what is measured, with %d for the size.
	what string
	size int
	// sides in the order of the table; the first is the one others are
	// compared with.
	sides []side
	// setup prepares what all runs share and returns what their processes need
	// to know of it.
	setup func(ctx context.Context, size int) (env []string, teardown func() error, err error)
}

// side is one contender.
type side struct {
	name string
	run  func(ctx context.Context, size int) (figures, error)
}

// figures are what a run measured, by name and unit.
type figures map[string]float64

var lines = []line{firstSync, replaySync, reads, fanOut(1), fanOut(4), fanOut(16)}

func main() {
	var (
		only = flag.String("line", "", "measure only the `line` with this name")
		runs = flag.Int("runs", 5, "measure each side this many times")
		size = flag.Int("size", 0, "number of objects instead of the line's own")
		one  = flag.String("side", "", "run one `side` once, in this process, and print its figures as JSON")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, *only, *one, *runs, *size); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, only, one string, runs, size int) error {
	measured := false
	for _, l := range lines {
		if only != "" && l.name != only {
			continue
		}
		measured = true
		if size > 0 {
			l.size = size
		}
		if one != "" {
			return l.child(ctx, one)
		}
		if err := l.measure(ctx, runs); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	if !measured {
		var names []string
		for _, l := range lines {
			names = append(names, l.name)
		}
		return fmt.Errorf("there is no line %q, but %s", only, strings.Join(names, ", "))
	}
	return nil
}

// child is one measurement, in a process of its own.
func (l line) child(ctx context.Context, name string) error {
	i := slices.IndexFunc(l.sides, func(s side) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("line %s has no side %q", l.name, name)
	}
	got, err := l.sides[i].run(ctx, l.size)
	if err != nil {
		return err
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	got["CPU s"] = seconds(usage.Utime) + seconds(usage.Stime)
	// Not rusage's maximum: that one is inherited from the parent.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for row := range strings.Lines(string(status)) {
		var kb float64
		if n, _ := fmt.Sscanf(row, "VmHWM: %f kB", &kb); n == 1 {
			got["peak RSS MB"] = kb / 1024
		}
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// measure runs the sides in turn and prints their rows.
func (l line) measure(ctx context.Context, runs int) error {
	fmt.Fprintf(os.Stderr, "%s: preparing\n", l.name)
	env, teardown, err := l.setup(ctx, l.size)
	if err != nil {
		return err
	}
	results := map[string][]figures{}
	for i := -1; i < runs && err == nil; i++ { // one for warming up
		for _, s := range l.sides {
			fmt.Fprintf(os.Stderr, "%s: run %d of %d, %s\n", l.name, max(i, 0)+1, runs, s.name)
			var got figures
			if got, err = l.spawn(ctx, s.name, env); err != nil {
				err = fmt.Errorf("%s: %w", s.name, err)
				break
			}
			if i >= 0 {
				results[s.name] = append(results[s.name], got)
			}
		}
	}
	if e := teardown(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	l.print(results)
	return nil
}

func (l line) spawn(ctx context.Context, name string, env []string) (figures, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-line", l.name, "-side", name, "-size", fmt.Sprint(l.size))
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var got figures
	return got, json.Unmarshal(out, &got)
}

// print writes the rows of a line as a Markdown table.
func (l line) print(results map[string][]figures) {
	base := results[l.sides[0].name]
	var names []string
	for name := range base[0] {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Printf("\n**%s** (%d runs each, %s, %d CPUs)\n\n", fmt.Sprintf(l.what, l.size), len(base), runtime.Version(), runtime.NumCPU())
	fmt.Printf("| |")
	for _, name := range names {
		fmt.Printf(" %s | ratio |", name)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("---:|---:|", len(names)))
	for _, s := range l.sides {
		fmt.Printf("| %s |", s.name)
		for _, name := range names {
			var values, ratios []float64
			for i, f := range results[s.name] {
				values = append(values, f[name])
				ratios = append(ratios, f[name]/base[i][name])
			}
			fmt.Printf(" %s | %s |", spread(values), spread(ratios))
		}
		fmt.Println()
	}
}

// spread is a median with the smallest and the largest value.
func spread(values []float64) string {
	slices.Sort(values)
	format := "%.3g"
	if values[len(values)/2] >= 1000 {
		format = "%.0f"
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", values[len(values)/2], values[0], values[len(values)-1])
}
