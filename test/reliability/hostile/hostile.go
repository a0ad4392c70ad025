package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/soak"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// Options of a run.
type Options struct {
	// For is the duration of the run; 0 means until Requests have been made.
	For time.Duration
	// Requests is the maximum number of requests; 0 means no limit.
	Requests int
	// Seed determines the requests.
	Seed uint64
	// Binary is the path of a tidings binary; empty: build one.
	Binary string
	// Bodies enables the comparison of bodies and headers of refusals.
	Bodies bool
	// Log gets progress messages.
	Log *slog.Logger
}

// workers is the number of concurrent requests.
const workers = 16

// run is one run.
type run struct {
	options Options
	report  *Report
	world   *world
	gen     *generator
	mirrors []*mirror
	server  string // the API server
	tls     *tls.Config
	anyone  []*caller // at mirrors with authentication, with or without credentials
	local   *caller   // at a mirror without authentication
	made    atomic.Int64
	quiet   sync.RWMutex // nobody asks while objects change
}

// Run starts a cluster and its mirrors, and makes requests. An error means that the run
// itself failed, that a mirror did not survive it, or that its audit log has what it must not.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := os.MkdirTemp("", "tidings-hostile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if o.Binary == "" {
		o.Log.Info("building the server")
		if o.Binary, err = soak.BuildServer(ctx, dir, nil, false); err != nil {
			return nil, err
		}
	}
	cp, err := controlplane.Launch(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cp.Stop() }()
	r := &run{options: o, report: newReport(o.Seed)}
	if r.world, err = newWorld(cp.AdminConfig(), rand.New(rand.NewPCG(o.Seed, 0))); err != nil {
		return nil, err
	}
	defer r.world.client.CloseIdleConnections()
	o.Log.Info("filling the cluster")
	if err := r.world.fill(ctx); err != nil {
		return nil, err
	}
	r.callers(cp.AdminConfig().BearerToken)
	if err := r.connect(cp.URL(), cp.AdminConfig().CAData); err != nil {
		return nil, err
	}
	r.gen = &generator{world: r.world}
	r.mirrors = []*mirror{
		{name: "a mirror", weight: 4},
		{name: "a mirror without Secrets", withoutSecrets: true, weight: 2},
		{name: "a mirror without authentication and Secrets", loopback: true, withoutSecrets: true, weight: 2},
		{name: "a mirror that hands on", passthrough: true, withoutSecrets: true, weight: 2},
	}
	for i, m := range r.mirrors {
		if err := m.start(ctx, o.Binary, cp.Kubeconfig(controlplane.Admin), filepath.Join(dir, fmt.Sprint("server-", i, ".log"))); err != nil {
			return nil, err
		}
		defer func() { _ = m.process.Kill() }()
		if err := r.warm(ctx, m); err != nil {
			return nil, err
		}
	}
	if err := r.live(ctx, "past"); err != nil {
		return nil, err
	}
	o.Log.Info("asking", "seed", o.Seed)
	begun := time.Now()
	err = r.ask(ctx)
	r.report.Took = time.Since(begun)
	for _, m := range r.mirrors {
		select {
		case <-m.process.Ended():
			return r.report, fmt.Errorf("%s has ended:\n%s", m.name, m.process.Log())
		default:
		}
		err = errors.Join(err, r.judgeAuditLog(m))
	}
	return r.report, err
}

func (r *run) callers(admin string) {
	r.local = &caller{name: "this machine", all: true}
	r.anyone = append(r.world.callers,
		&caller{name: "admin", token: admin, all: true},
		&caller{name: "nothing"},
		&caller{name: "wrong token", header: "Bearer wrong"},
		&caller{name: "empty token", header: "Bearer "},
		&caller{name: "password", header: "Basic YWRtaW46YWRtaW4tdG9rZW4="},
		&caller{name: "two tokens", header: "Bearer wrong, Bearer " + admin + "x"},
	)
}

// authorization is the header, "" for none.
func (c *caller) authorization() string {
	if c.token != "" {
		return "Bearer " + c.token
	}
	return c.header
}

func (r *run) connect(server string, ca []byte) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	r.server = u.Host
	r.tls = &tls.Config{RootCAs: pool, ServerName: u.Hostname(), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	return nil
}

func (r *run) admin() *caller {
	for _, c := range r.anyone {
		if c.all {
			return c
		}
	}
	panic("there is no administrator")
}

// ask makes requests until the end of the run.
func (r *run) ask(ctx context.Context) error {
	if r.options.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.options.For)
		defer cancel()
	}
	done, end := context.WithCancel(ctx)
	defer end()
	changed := make(chan error, 1)
	go func() {
		var err error
		if soak.Sleep(done, time.Until(r.world.begun.Add(settled))) {
			err = r.live(done, "later")
		}
		if done.Err() != nil {
			err = nil // the run is over
		}
		changed <- err
	}()
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error {
			w := r.newWorker()
			defer w.close()
			for ctx.Err() == nil {
				n := r.made.Add(1)
				if r.options.Requests > 0 && n > int64(r.options.Requests) {
					break
				}
				r.quiet.RLock()
				err := w.one(rand.New(rand.NewPCG(r.options.Seed, uint64(n))))
				r.quiet.RUnlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	end()
	return errors.Join(err, <-changed)
}

// settled is how old a namespace must be before the rights in it are enough for its past.
const settled = 62 * time.Second

// live changes objects, and waits until the mirrors have the past.
func (r *run) live(ctx context.Context, name string) error {
	r.quiet.Lock()
	defer r.quiet.Unlock()
	since := time.Now().UTC().Format(time.RFC3339Nano)
	if err := r.world.live(ctx, name); err != nil {
		return err
	}
	r.gen.since = since
	for _, m := range r.mirrors {
		if err := r.collect(ctx, m, since); err != nil {
			return err
		}
	}
	return nil
}
