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

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// Options of a run.
type Options struct {
	// For is the time of changes and faults. The phases before and after take
	// another minute or two.
	For time.Duration
	// Seed determines the changes and faults.
	Seed uint64
	// Nodes of the cluster; 0 means 20.
	Nodes int
	// Rate is the number of changes a second; 0 means 20.
	Rate float64
	// Faults enables faults.
	Faults bool
	// Patience is how long a reader may take to get all events after the end of
	// a fault; 0 means two minutes, twice the longest backoff of a reflector.
	// Slow and temporarily disconnected readers have twice as long.
	Patience time.Duration
	// Server is the path of a tidings binary; empty: build one.
	Server string
	// Mutant is a defect to put into the server that is built.
	Mutant *Mutant
	// Race builds the server with the race detector.
	Race bool
	// UntilFound ends the run with the first mismatch.
	UntilFound bool
	// Log gets progress messages.
	Log *slog.Logger
}

const (
	checkEvery = time.Second
	listEvery  = 400 * time.Millisecond
	bodyEvery  = time.Second
	meterEvery = 2 * time.Second
	// warmUp is the part of the time before the server's usage is first measured:
	// until its log for resuming watches is full.
	warmUp = 0.15
	// settle limits the time for the server to release memory.
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

// Run runs a cluster, a mirror and its readers, and checks them. Mismatches are in the
// report. An error means that the run itself failed; the report is not nil otherwise.
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
		// Small limits, so that all of them are reached often.
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
