package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/api/resource"
)

// figures are what the kernel says of a process.
type figures struct {
	rss, peak float64 // MB
	cpu       float64 // seconds
}

func (f figures) String() string {
	return fmt.Sprintf("RSS %.0f MB, peak %.0f MB, CPU %.1f s", f.rss, f.peak, f.cpu)
}

// A process is at rest when it has used less than a tenth of a CPU for this long, so
// that the collector and the scavenger of Go have done their work, too.
const quietFor = 20 * time.Second

// atRest waits until a process is at rest, and measures it.
func atRest(ctx context.Context, pid int) (figures, error) {
	before, err := read(pid)
	for since := time.Now(); err == nil; {
		select {
		case <-ctx.Done():
			return figures{}, context.Cause(ctx)
		case <-time.After(2 * time.Second):
		}
		var now figures
		if now, err = read(pid); err != nil {
			break
		}
		if now.cpu-before.cpu > 0.2 {
			since = time.Now()
		}
		if before = now; time.Since(since) >= quietFor {
			return now, nil
		}
	}
	return figures{}, err
}

func read(pid int) (figures, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return figures{}, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return figures{}, err
	}
	stat, err := process.Stat()
	const mb = 1 << 20
	return figures{float64(status.VmRSS) / mb, float64(status.VmHWM) / mb, stat.CPUTime()}, err
}

// median takes each figure by itself.
func median(all []figures) figures {
	of := func(figure func(figures) float64) float64 {
		var values []float64
		for _, f := range all {
			values = append(values, figure(f))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return figures{of(func(f figures) float64 { return f.rss }), of(func(f figures) float64 { return f.peak }), of(func(f figures) float64 { return f.cpu })}
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }
