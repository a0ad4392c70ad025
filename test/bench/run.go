package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// inChild is set in the environment of a process that runs one side.
const inChild = "TIDINGS_BENCH_SIDE"

// results are the figures of each side, run by run. The runs of the same number
// were made one after the other.
type results map[string][]figures

// measure runs the sides in turn, so many times, and a different one first each
// time. Nothing is warmed up: each run has its own process, and a median hides
// which side was first.
func (l line) measure(ctx context.Context, runs int, profile string) (results, error) {
	progress("%s: preparing", l.name)
	defer func(begun time.Time) { progress("%s: took %v", l.name, time.Since(begun).Round(time.Second)) }(time.Now())
	var env []string
	if l.setup != nil {
		var teardown func() error
		var err error
		if env, teardown, err = l.setup(ctx, l.size); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		defer func() { // nothing is lost if it fails
			if err := teardown(); err != nil {
				progress("%s: %v", l.name, err)
			}
		}()
	}
	got := results{}
	for i := range runs {
		for j := range l.sides {
			s := l.sides[(i+j)%len(l.sides)]
			begun := time.Now()
			f, err := l.spawn(ctx, s.name, profile, env)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", l.name, s.name, err)
			}
			progress("%s: run %d of %d, %s, took %.1f s", l.name, i+1, runs, s.name, time.Since(begun).Seconds())
			got[s.name] = append(got[s.name], f)
		}
	}
	return got, nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// spawn runs one side in a process of its own.
func (l line) spawn(ctx context.Context, name, profile string, env []string) (figures, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-line", l.name, "-side", name, "-size", strconv.Itoa(l.size), "-cpuprofile", profile)
	cmd.Env = append(append(os.Environ(), env...), inChild+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var got figures
	return got, json.Unmarshal(out, &got)
}

// child is one measurement, in this process, which is there for nothing else, with
// a profile if it is given the name of a file.
func (l line) child(ctx context.Context, name, profile string) error {
	i := slices.IndexFunc(l.sides, func(s side) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("line %s has no side %q", l.name, name)
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	got, err := l.sides[i].run(ctx, l.size)
	if err != nil {
		return err
	}
	got["CPU s"] = cpu()
	// Not rusage's maximum: that one is inherited from the parent.
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	status, err := self.NewStatus()
	if err != nil {
		return err
	}
	got["peak RSS MB"] = float64(status.VmHWM) / (1 << 20)
	return json.NewEncoder(os.Stdout).Encode(got)
}

// cpu is the time this process has been computing for, in seconds.
func cpu() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail: the arguments are right
	return seconds(usage.Utime) + seconds(usage.Stime)
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
