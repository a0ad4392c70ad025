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
	"slices"
	"strings"
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
	// Only names the faults to inject; empty: all.
	Only []string
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
	// settleTime limits the time for a process to release memory.
	settleTime = 90 * time.Second
	// leastMeasured is the shortest run in which the processes are measured.
	leastMeasured = 3 * time.Minute
	lookEvery     = 100 * time.Millisecond
)

// soak is one run.
type soak struct {
	options Options
	log     *slog.Logger
	cp      *controlplane.Cluster
	proxy   *faultproxy.Proxy
	wire    *faultproxy.TCP
	parts   []*part
	url     string // of the server
	truth   *truth
	report  *Report
	config  *rest.Config                                 // by way of the proxies
	faults  []fault                                      // those to inject
	begin   func(context.Context, *errgroup.Group) error // starts the readers
}

func newSoak(o Options) *soak {
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
	return s
}

// Run runs a cluster, a mirror and its readers, and checks them. Mismatches are in the
// report. An error means that the run itself failed; the report is not nil otherwise.
func Run(ctx context.Context, o Options) (*Report, error) {
	s := newSoak(o)
	dir, err := os.MkdirTemp("", "tidings-soak-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, err := s.binary(ctx, dir)
	if err != nil {
		return nil, err
	}
	if s.cp, err = controlplane.Launch(ctx, controlplane.WithControllers(), controlplane.WithKwok(s.options.Nodes)); err != nil {
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
	server, err := s.add(ctx, binary, dir, "server", "server", append([]string{"--kubeconfig", kubeconfig}, smallLimits...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.kill() }()
	s.url = server.url
	s.begin = s.readers
	if s.faults, err = s.chosen(s.mirrorFaults()); err != nil {
		return nil, err
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	return s.report, nil
}

// smallLimits are so small that all of them are reached often.
var smallLimits = []string{"--retain", "500", "--drop-unread-after", "0", "--backlog", "300", "--page-ttl", "20s"}

// binary returns the path of the command tidings.
func (s *soak) binary(ctx context.Context, dir string) (string, error) {
	if s.options.Server != "" {
		return s.options.Server, nil
	}
	s.log.Info("building the server")
	return BuildServer(ctx, dir, s.options.Mutant, s.options.Race)
}

// add starts "tidings serve" as a part of the run. The caller must kill it.
func (s *soak) add(ctx context.Context, binary, dir, role, name string, flags ...string) (*part, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &part{name: name, role: role, url: "http://" + address, launch: func(ctx context.Context) (*Process, error) {
		return Serve(ctx, binary, address, filepath.Join(dir, name+".log"), nil, flags...)
	}}
	s.parts = append(s.parts, p)
	return p, p.start(ctx)
}

// chosen returns the faults to inject.
func (s *soak) chosen(all []fault) ([]fault, error) {
	if len(s.options.Only) == 0 {
		return all, nil
	}
	var chosen []fault
	for _, name := range s.options.Only {
		i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
		if i < 0 {
			var names []string
			for _, f := range all {
				names = append(names, f.name)
			}
			return nil, fmt.Errorf("there is no fault %q; there are: %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// run has everything happen.
func (s *soak) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.truth.follow(ctx, s.cp) })
	for _, p := range s.parts {
		group.Go(func() error { return p.watchOver(ctx) })
	}
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
