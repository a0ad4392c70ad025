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

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/reliability/soak"
)

// Options of a run.
type Options struct {
	// Objects there are, of so many Bytes each, in so many Namespaces.
	Objects, Bytes, Namespaces int
	// Lists a second, of all kinds.
	Lists int
	// Wide is how many of the watches are of everything. The others are of one
	// namespace each.
	Wide int
	// Step is how long each step is measured, Settle how long it goes on before.
	Step, Settle time.Duration
	// Steps are what is measured, one after the other.
	Steps []Step
	// Environment of the server, beside this process' own.
	Environment []string
	// Flags of the server, beside those it takes to run.
	Flags []string
	// Log gets what goes on.
	Log *slog.Logger
}

// Step is one load.
type Step struct {
	Watches int // open at once
	Changes int // a second
}

// Result is what a step has shown.
type Result struct {
	Step
	Open      int     // watches
	Made      float64 // changes a second
	Delivered float64 // events a second, to all watches together
	Missing   float64 // part of the events that should have come and have not yet

	Latency      Latency // of a change
	Lists        Latency // of a list or get
	ListsDone    float64 // a second
	Refused      uint64  // requests
	Broken       uint64  // watches that ended, answers that broke off
	Heap         uint64  // bytes, garbage included
	RSS          uint64
	Goroutines   uint64
	CPU, Clients float64 // processors that the server and everything else took
}

// Latency is how long something took.
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
	// A connection for each watch; those who list share some.
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

// measure has one load go on for a while, and looks at what becomes of it.
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
	// A server that is late says late what it has used.
	asked := time.Now()
	before, err := server.Usage(ctx)
	if err != nil {
		return Result{}, err
	}
	between := (time.Since(asked) / 2).Seconds()
	now := &counts{}
	mine, begun, revision := processorTime(), time.Now(), up.revision()
	c.counted.Store(now)
	if !soak.Sleep(ctx, o.Step) {
		return Result{}, ctx.Err()
	}
	c.counted.Store(nil)
	took, others, made := time.Since(begun).Seconds(), processorTime()-mine, up.revision()-revision
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
