package soak

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/reliability/faultproxy"
)

// Options of a run.
type Options struct {
	// For is how long things happen and go wrong. What comes before and after
	// takes another minute or two.
	For time.Duration
	// Seed decides what happens and what goes wrong.
	Seed uint64
	// Nodes of the cluster; 0 means 20.
	Nodes int
	// Rate is how much happens, in steps a second; 0 means 20.
	Rate float64
	// Faults are injected unless it is false.
	Faults bool
	// Patience is how long a reader may take to be told everything once a fault
	// is over; 0 means two minutes, twice the longest pause that a reflector
	// makes between two tries. Who is slow, or away at times, has twice as long.
	Patience time.Duration
	// Server is the path of a tidings that is built already; empty: build it.
	Server string
	// Mutant is a defect to put into the server that is built.
	Mutant *Mutant
	// Race has the server built with the race detector.
	Race bool
	// UntilFound ends the run with the first mismatch.
	UntilFound bool
	// Log gets what goes on.
	Log *slog.Logger
}

const (
	checkEvery = time.Second
	listEvery  = 400 * time.Millisecond
	bodyEvery  = time.Second
	meterEvery = 2 * time.Second
	// warmUp is how much of the time things happen before what the server takes
	// is first looked at: until what it keeps for those who resume is full.
	warmUp = 0.15
	// settle is how long it may take the server to give back what it took.
	settle = 90 * time.Second
)

// soak is one run.
type soak struct {
	options Options
	log     *slog.Logger
	cp      *controlplane.Cluster
	proxy   *faultproxy.Proxy
	wire    *faultproxy.TCP
	server  *Process
	url     string // of the server
	truth   *truth
	report  *Report
	config  *rest.Config // by way of the proxies
}

// Run runs a cluster, a mirror and its readers, and checks. The error says that
// the run itself could not be made; what was found is in the report, which is not
// nil if there is no error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Nodes == 0 {
		o.Nodes = 20
	}
	if o.Rate == 0 {
		o.Rate = 20
	}
	if o.Patience == 0 {
		o.Patience = 2 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &soak{options: o, log: o.Log, report: newReport(o.Seed), truth: newTruth(resources...)}
	if o.Mutant != nil {
		s.report.Mutant = o.Mutant.What
	}
	dir, err := os.MkdirTemp("", "tidings-soak-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := o.Server
	if binary == "" {
		s.log.Info("building the server")
		if binary, err = BuildServer(ctx, dir, o.Mutant, o.Race); err != nil {
			return nil, err
		}
	}
	if s.cp, err = controlplane.Launch(ctx, controlplane.WithControllers(), controlplane.WithKwok(o.Nodes)); err != nil {
		return nil, err
	}
	defer func() { _ = s.cp.Stop() }()
	if s.proxy, err = faultproxy.New(s.cp.AdminConfig()); err != nil {
		return nil, err
	}
	defer s.proxy.Close()
	if s.wire, err = faultproxy.NewTCP(s.proxy.Addr()); err != nil {
		return nil, err
	}
	defer s.wire.Close()
	s.config = s.wire.Config(s.proxy.Config(s.cp.AdminConfig()))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, s.config); err != nil {
		return nil, err
	}
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	if s.server, err = Serve(ctx, binary, address, filepath.Join(dir, "server.log"), nil, "--kubeconfig", kubeconfig,
		// So little that all of it is full, or used up, every so often.
		"--retain", "500", "--drop-unread-after", "0", "--backlog", "300", "--page-ttl", "20s"); err != nil {
		return nil, err
	}
	defer func() { _ = s.server.Kill() }()
	s.url = s.server.URL
	if err := s.run(ctx); err != nil {
		return nil, fmt.Errorf("%w\nthe server's log ends:\n%s", err, s.server.Log())
	}
	return s.report, nil
}

// run has everything happen.
func (s *soak) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.truth.follow(ctx, s.cp) })
	group.Go(func() error {
		select {
		case <-s.server.Ended():
			return fmt.Errorf("the server ended by itself: %v", s.server.err)
		case <-ctx.Done():
			return nil
		}
	})
	group.Go(func() error {
		defer cancel()
		return s.phases(ctx, group)
	})
	err := group.Wait()
	s.report.mu.Lock()
	s.report.took = time.Since(s.report.begun)
	s.report.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

func (s *soak) random(name string) *rand.Rand {
	return rand.New(rand.NewPCG(s.options.Seed, hash(name)))
}

func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return h.Sum64()
}
