package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/soak"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// Options of a run.
type Options struct {
	// Objects is the number of objects, of Bytes each, in Namespaces.
	Objects, Bytes, Namespaces int
	// Lists is the number of lists and gets a second.
	Lists int
	// Wide is the number of watches of all namespaces. The others are of one
	// namespace each.
	Wide int
	// Step is how long each step is measured, Settle how long it runs before.
	Step, Settle time.Duration
	// Steps are the loads to measure, one after the other.
	Steps []Step
	// Environment is added to the server's environment.
	Environment []string
	// Flags are added to the server's flags.
	Flags []string
	// Log gets progress messages.
	Log *slog.Logger
}

// Step is one load.
type Step struct {
	Watches int // open at once
	Changes int // a second
}

// Result is the result of a step.
type Result struct {
	Step
	Open      int     // watches
	Made      float64 // changes a second
	Delivered float64 // events a second, to all watches together
	Missing   float64 // part of the events that have not been delivered yet

	Latency      Latency // of a change
	Lists        Latency // of a list or get
	ListsDone    float64 // a second
	Refused      uint64  // requests
	Broken       uint64  // watches that ended, responses that were cut off
	Heap         uint64  // bytes, garbage included
	RSS          uint64
	Goroutines   uint64
	CPU, Clients float64 // CPUs used by the server and by everything else
}

// Latency holds quantiles of durations.
type Latency struct{ P50, P95, P99, Max time.Duration }

func latencyOf(h *histogram) Latency {
	return Latency{h.quantile(.5), h.quantile(.95), h.quantile(.99), h.max()}
}

// Run measures each step.
func Run(ctx context.Context, o Options) ([]Result, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp("", "tidings-load-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, err := soak.BuildServer(ctx, dir, nil, false)
	if err != nil {
		return nil, err
	}
	up, err := newUpstream(ctx, o)
	if err != nil {
		return nil, err
	}
	defer up.stop()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, up.config); err != nil {
		return nil, err
	}
	address, err := soak.FreeAddress()
	if err != nil {
		return nil, err
	}
	server, err := soak.Serve(ctx, binary, address, filepath.Join(dir, "server.log"), o.Environment,
		append([]string{"--kubeconfig", kubeconfig, "--resource", "configmaps"}, o.Flags...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Kill() }()

	c := &clients{url: server.URL, namespaces: o.Namespaces}
	// A connection for each watch; lists share some.
	watching := &http.Client{Transport: &http.Transport{
		DisableCompression: true, ReadBufferSize: 4 << 10, WriteBufferSize: 1 << 10,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, addr)
		},
	}}
	listing := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer watching.CloseIdleConnections()
	defer listing.CloseIdleConnections()
	defer c.parts.Wait()
	defer cancel() // before the wait
	c.parts.Go(func() { c.list(ctx, listing, o.Lists) })

	var results []Result
	watches := 0
	for _, step := range o.Steps {
		o.Log.Info("a step", "watches", step.Watches, "changes a second", step.Changes)
		for ; watches < step.Watches; watches++ {
			n := watches
			c.parts.Go(func() { c.watch(ctx, watching, n, n < o.Wide, n%2 == 1) })
			if n%50 == 49 && !soak.Sleep(ctx, 10*time.Millisecond) {
				break
			}
		}
		result, err := c.measure(ctx, o, step, up, server)
		if err != nil {
			return nil, fmt.Errorf("%w\nthe server's log ends:\n%s", err, server.Log())
		}
		results = append(results, result)
		o.Log.Info("measured", "p50", result.Latency.P50, "p99", result.Latency.P99, "open", result.Open, "delivered a second", int(result.Delivered), "refused", result.Refused, "rss MB", result.RSS>>20)
		select {
		case <-server.Ended():
			return results, errors.New("the server ended by itself:\n" + server.Log())
		default:
		}
	}
	return results, nil
}

// measure runs one load for a while and measures it.
func (c *clients) measure(ctx context.Context, o Options, step Step, up *upstream, server *soak.Process) (Result, error) {
	stepping, stop := context.WithCancel(ctx)
	defer stop()
	var changing sync.WaitGroup
	defer changing.Wait()
	defer stop() // before the wait
	failed := make(chan error, 1)
	changing.Go(func() {
		if err := up.change(stepping, step.Changes); err != nil {
			failed <- err
		}
	})
	if !soak.Sleep(ctx, o.Settle) {
		return Result{}, ctx.Err()
	}
	// An overloaded server reports its usage late.
	asked := time.Now()
	before, err := server.Usage(ctx)
	if err != nil {
		return Result{}, err
	}
	between := (time.Since(asked) / 2).Seconds()
	now := &counts{}
	mine, begun, revision := cpuTime(), time.Now(), up.revision()
	c.counted.Store(now)
	if !soak.Sleep(ctx, o.Step) {
		return Result{}, ctx.Err()
	}
	c.counted.Store(nil)
	took, others, made := time.Since(begun).Seconds(), cpuTime()-mine, up.revision()-revision
	asked = time.Now()
	after, err := server.Usage(ctx)
	if err != nil {
		return Result{}, err
	}
	between += took + (time.Since(asked) / 2).Seconds()
	select {
	case err := <-failed:
		return Result{}, err
	default:
	}
	open := int(c.open.Load())
	wide := min(o.Wide, open)
	should := float64(made) * (float64(wide) + float64(open-wide)/float64(c.namespaces))
	n := float64(now.delivered.n.Load())
	return Result{
		Step: step, Open: open, Made: float64(made) / took, Delivered: n / took, Missing: max(0, 1-n/max(should, 1)),
		Latency: latencyOf(&now.delivered), Lists: latencyOf(&now.lists), ListsDone: float64(now.lists.n.Load()) / took,
		Refused: now.refused.Load(), Broken: now.broken.Load(),
		Heap: after.Heap, RSS: after.RSS, Goroutines: after.Goroutines,
		CPU: (after.CPU - before.CPU) / between, Clients: others / took,
	}, nil
}
