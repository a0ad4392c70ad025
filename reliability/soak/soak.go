package soak

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
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
	// makes between two tries.
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

// phases: the world is made, readers come, things happen, things go wrong, and in
// the end all is quiet and must be as it was.
func (s *soak) phases(ctx context.Context, group *errgroup.Group) error {
	churn, err := newChurn(s.cp.AdminConfig(), s.report)
	if err != nil {
		return err
	}
	s.log.Info("making what there is at first")
	if err := churn.build(ctx); err != nil {
		return fmt.Errorf("make what there is at first: %w", err)
	}
	if err := s.readers(ctx, group); err != nil {
		return err
	}
	s.report.mu.Lock()
	s.report.begun = time.Now()
	s.report.mu.Unlock()
	busy, stop := context.WithTimeout(ctx, s.options.For)
	defer stop()
	if s.options.UntilFound {
		go func() {
			select {
			case <-s.report.found:
				stop()
			case <-busy.Done():
			}
		}()
	}
	acting, _ := errgroup.WithContext(busy)
	for i := range hands {
		acting.Go(func() error { return churn.run(busy, s.random(fmt.Sprint("churn ", i)), s.options.Rate/hands) })
	}
	s.log.Info("things happen")
	if sleep(busy, time.Duration(float64(s.options.For)*warmUp)) {
		resume := churn.pause()
		s.log.Info("all is quiet, to see what the server takes")
		if err := churn.restore(ctx); err != nil {
			return fmt.Errorf("make what there was at first: %w", err)
		}
		if err := s.quiet(ctx); err != nil {
			return err
		}
		s.report.setBaseline(s.settled(ctx, Usage{}))
		resume()
	}
	acting.Go(func() error { return s.measure(busy) })
	if s.options.Faults {
		s.log.Info("things go wrong")
		acting.Go(func() error { return s.breakThings(busy, s.random("faults")) })
	}
	if err := acting.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil || s.options.UntilFound && len(s.report.Mismatches()) > 0 {
		return ctx.Err()
	}
	return s.finish(ctx, churn)
}

// finish has the world be as it was, and looks whether the server is, too.
func (s *soak) finish(ctx context.Context, churn *churn) error {
	s.log.Info("all is over: everything is to be as it was")
	if err := churn.restore(ctx); err != nil {
		return fmt.Errorf("make what there was at first: %w", err)
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	record := s.report.fault("none: at the end")
	if err := s.recover(ctx, func(who string, took time.Duration) { s.report.recovered(record, who, took) }); err != nil {
		return err
	}
	s.report.setFinal(s.settled(ctx, allowance(s.report.baseline)))
	return nil
}

// quiet waits until nothing happens in the cluster any more.
func (s *soak) quiet(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	sum := func() (n int) {
		for _, r := range resources {
			n += s.truth.count(r.stored)
		}
		return n
	}
	for last, since := sum(), time.Now(); time.Since(since) < 4*time.Second; {
		if !sleep(patience, 200*time.Millisecond) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.New("the cluster does not come to rest within two minutes")
		}
		if now := sum(); now != last {
			last, since = now, time.Now()
		}
	}
	return nil
}

// readers starts all who read.
func (s *soak) readers(ctx context.Context, group *errgroup.Group) error {
	if err := s.library(ctx, group); err != nil {
		return err
	}
	often := func(least, most time.Duration) func() time.Duration {
		random := s.random(fmt.Sprint("stay", least, most))
		return func() time.Duration { return between(random, least, most) }
	}
	for _, e := range []struct {
		name string
		r    resource
		stay func() time.Duration
		slow bool
	}{
		{"pods", pods, nil, false},
		{"pods, comes and goes", pods, often(time.Second, 15*time.Second), false},
		{"config maps, slow", configMaps, nil, true},
		{"config maps, comes and goes", configMaps, often(time.Second, 10*time.Second), false},
		{"deployments", deployments, often(10*time.Second, 60*time.Second), false},
		{"widgets", widgets, nil, false},
		{"widgets, comes and goes", widgets, often(time.Second, 8*time.Second), false},
	} {
		c := &sse{replay: newReplay("server-sent events", e.name, e.r, s.truth, s.report), soak: s, stay: e.stay, slow: e.slow}
		group.Go(func() error { return c.run(ctx) })
	}
	for _, e := range []struct {
		name                    string
		r                       resource
		metadata, initial, slow bool
	}{
		{"pods", pods, false, false, false},
		{"pods, streamed list", pods, true, true, false},
		{"config maps", configMaps, true, false, false},
		{"config maps, slow", configMaps, false, false, true},
		{"config maps, streamed list, slow", configMaps, false, true, true},
		{"replica sets", replicaSets, true, true, false},
		{"widgets", widgets, false, false, false},
		{"widgets, streamed list", widgets, true, true, false},
	} {
		c := &kubeWatch{replay: newReplay("Kubernetes watch", e.name, e.r, s.truth, s.report), soak: s, metadata: e.metadata, initial: e.initial, slow: e.slow}
		group.Go(func() error { return c.run(ctx) })
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}})
	if err != nil {
		return err
	}
	group.Go(func() error { return s.clientGo(ctx, client.CoreV1().RESTClient(), pods, &corev1.Pod{}) })
	group.Go(func() error { return s.clientGo(ctx, client.CoreV1().RESTClient(), configMaps, &corev1.ConfigMap{}) })
	group.Go(func() error { return s.clientGo(ctx, client.AppsV1().RESTClient(), deployments, &appsv1.Deployment{}) })
	group.Go(func() error { return s.lists(ctx, s.random("lists")) })
	group.Go(func() error { return s.bodies(ctx, s.random("bodies")) })
	return nil
}

// library starts informers in this process, and those who follow them.
func (s *soak) library(ctx context.Context, group *errgroup.Group) error {
	conn, err := cluster.New("soak", s.config)
	if err != nil {
		return err
	}
	quiet := informer.WithLogger(slog.New(slog.DiscardHandler))
	podsOf, err := informer.New[*corev1.Pod](conn, quiet)
	if err != nil {
		return err
	}
	mapsOf, err := informer.New[*corev1.ConfigMap](conn, quiet, informer.Compact())
	if err != nil {
		return err
	}
	deploymentsOf, err := informer.New[*appsv1.Deployment](conn, quiet, informer.Retain(200))
	if err != nil {
		return err
	}
	slow := s.random("slow")
	handle(ctx, s, podsOf, pods, "pods", nil)
	handle(ctx, s, podsOf, pods, "pods, slow", func() time.Duration { return between(slow, 0, 60*time.Millisecond) }, informer.FoldAfter(200))
	handle(ctx, s, mapsOf, configMaps, "config maps", nil)
	slower := s.random("slower")
	handle(ctx, s, mapsOf, configMaps, "config maps, slow", func() time.Duration { return between(slower, 0, 100*time.Millisecond) }, informer.FoldAfter(50))
	for _, run := range []func(context.Context) error{podsOf.Run, mapsOf.Run, deploymentsOf.Run} {
		group.Go(func() error {
			for ctx.Err() == nil { // refused, as it will be when rights are taken away
				if err := run(ctx); err != nil && ctx.Err() == nil {
					s.report.ended("informer", err.Error())
					sleep(ctx, time.Second)
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		return loop(ctx, s, deploymentsOf, deployments, "deployments, comes and goes", s.random("loop"))
	})
	group.Go(func() error { return views(ctx, s, podsOf, pods) })
	group.Go(func() error { return views(ctx, s, mapsOf, configMaps) })
	group.Go(func() error { return views(ctx, s, deploymentsOf, deployments) })
	return nil
}

// measure samples what the server takes.
func (s *soak) measure(ctx context.Context) error {
	for sleep(ctx, meterEvery) {
		u, err := s.server.Usage(ctx)
		if err != nil {
			continue // it ended, which is told elsewhere, or the run did
		}
		s.report.usage.sample(u)
	}
	return nil
}

// settled is what the server takes when nobody writes: the least of some moments,
// right after collections. It waits for what is allowed, if there is such a thing.
func (s *soak) settled(ctx context.Context, allowed Usage) Usage {
	least := Usage{Heap: ^uint64(0), RSS: ^uint64(0), Goroutines: ^uint64(0), FDs: ^uint64(0)}
	client := s.client(false)
	defer client.CloseIdleConnections()
	patience := settle
	if allowed == (Usage{}) {
		patience = 15 * time.Second
	}
	for begun := time.Now(); time.Since(begun) < patience && sleep(ctx, 100*time.Millisecond); {
		// Lists make garbage, which has the server collect it.
		_, _ = s.get(ctx, client, s.url+pods.path(nil), "application/json", "")
		u, err := s.server.Usage(ctx)
		if err != nil {
			continue
		}
		least = Usage{Heap: min(least.Heap, u.Heap), RSS: min(least.RSS, u.RSS), Goroutines: min(least.Goroutines, u.Goroutines), FDs: min(least.FDs, u.FDs), GCs: u.GCs, CPU: u.CPU}
		if allowed != (Usage{}) && time.Since(begun) > 10*time.Second && within(least, allowed) {
			break
		}
	}
	return least
}

// allowance is what the server may take at the end, by what it took before: a
// fourth more of heap and the 64 MB of encodings that it keeps at most, which have
// not come together by then; 5 % more goroutines and 30, 30 more files.
func allowance(before Usage) Usage {
	return Usage{Heap: before.Heap + before.Heap/4 + 64<<20, Goroutines: before.Goroutines + before.Goroutines/20 + 30, FDs: before.FDs + 30}
}

func within(u, allowed Usage) bool {
	return u.Heap <= allowed.Heap && u.Goroutines <= allowed.Goroutines && u.FDs <= allowed.FDs
}

func (r *Report) setBaseline(u Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.baseline = u
}

func (r *Report) setFinal(u Usage) {
	r.mu.Lock()
	r.final = u
	before := r.baseline
	r.mu.Unlock()
	if before == (Usage{}) {
		return
	}
	if allowed := allowance(before); !within(u, allowed) {
		r.mismatch("server", fmt.Sprintf("does not give back what it took: %s of heap, %d goroutines and %d files at the end; allowed are %s, %d and %d",
			mb(u.Heap), u.Goroutines, u.FDs, mb(allowed.Heap), allowed.Goroutines, allowed.FDs), nil)
	}
}

func (s *soak) random(name string) *rand.Rand {
	return rand.New(rand.NewPCG(s.options.Seed, hash(name)))
}

func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return h.Sum64()
}

// client is one of the mirror's server, with connections of its own. Those of a
// slow one have small buffers.
func (s *soak) client(slow bool) *http.Client {
	transport := &http.Transport{DisableCompression: true}
	if slow {
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				err = conn.(*net.TCPConn).SetReadBuffer(8 << 10)
			}
			return conn, err
		}
	}
	return &http.Client{Transport: transport}
}

// direct is a client of the API server, past all proxies.
func (s *soak) direct() *http.Client {
	transport, err := rest.TransportFor(s.cp.AdminConfig())
	if err != nil {
		return http.DefaultClient
	}
	return &http.Client{Transport: transport}
}

// ended counts how an answer ended.
func (s *soak) ended(who string, err error) {
	how := "ended"
	var status *statusError
	switch {
	case err == nil:
	case errors.As(err, &status):
		how = fmt.Sprint(status.code)
		if status.code == http.StatusInternalServerError {
			how = status.Error()
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		how = "hung up"
	case errors.Is(err, io.EOF):
	case errors.Is(err, errExpired):
		how = "410, or gone"
	default:
		how = err.Error()
		if i := strings.Index(how, ": {"); i > 0 {
			how = how[:i]
		}
		if len(how) > 80 {
			how = how[:80] + "…"
		}
	}
	s.report.ended(who, how)
}
