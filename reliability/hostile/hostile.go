package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/reliability/soak"
)

// Options of a run.
type Options struct {
	// For is how long requests are made; 0 means until there were as many as
	// Requests says.
	For time.Duration
	// Requests is how many are made at most; 0 means any number.
	Requests int
	// Seed decides what is asked.
	Seed uint64
	// Binary is the path of a tidings that is built already; empty: build it.
	Binary string
	// Bodies has bodies and headers of refusals compared as well.
	Bodies bool
	// Log gets what goes on.
	Log *slog.Logger
}

// workers is how many requests are under way at once.
const workers = 16

// mirror is a server that is asked.
type mirror struct {
	name           string
	loopback       bool // without authentication
	passthrough    bool
	withoutSecrets bool
	weight         int
	process        *soak.Process
	address        string
	tls            *tls.Config
}

// run is one run.
type run struct {
	options Options
	report  *Report
	world   *world
	gen     *generator
	mirrors []*mirror
	server  string // the API server
	tls     *tls.Config
	anyone  []*caller // who authenticates, or not
	local   *caller   // at a mirror without authentication
	made    atomic.Int64
}

// Run starts a cluster and its mirrors, and asks. The error says that the run
// itself could not be made, or that a mirror did not live through it.
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
	r.gen = &generator{world: r.world, seed: o.Seed}
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
		if err := r.warm(m); err != nil {
			return nil, err
		}
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

func (m *mirror) start(ctx context.Context, binary, kubeconfig, log string) (err error) {
	if m.address, err = soak.FreeAddress(); err != nil {
		return err
	}
	flags := []string{"--kubeconfig", kubeconfig, "--resource", "*", "--page-ttl", "24h"}
	if !m.withoutSecrets {
		flags = append(flags, "--resource", "secrets")
	}
	if m.passthrough {
		flags = append(flags, "--passthrough")
	}
	if !m.loopback {
		flags = append(flags, "--authentication", "upstream")
		m.tls = &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1)} // its authority was made a moment ago
	}
	m.process, err = soak.Serve(ctx, binary, m.address, log, nil, flags...)
	return err
}

var (
	continueOf = regexp.MustCompile(`"continue":"([^"]+)"`)
	idOf       = regexp.MustCompile(`(?m)^id: (.+)$`)
)

// warm has the mirror mirror everything, and takes down what the administrator is
// given.
func (r *run) warm(m *mirror) error {
	admin := r.local
	if !m.loopback {
		admin = r.admin()
	}
	c := &client{address: m.address, tls: m.tls}
	defer c.close()
	get := func(path string, watch bool) answer {
		q := &request{method: "GET", watch: watch}
		return c.ask(q, q.bytes(path, m.address, admin.authorization(), ""))
	}
	for _, k := range resources {
		if m.withoutSecrets && k.plural == "secrets" {
			continue
		}
		own := "/" + k.group + "/" + k.version + "/" + k.plural
		if k.group == "" {
			own = "/core/v1/" + k.plural
		}
		a := get(k.path("", "")+"?limit=2", false)
		if a.status != 200 {
			return fmt.Errorf("%s does not list %s: %d %s %v", m.name, k.plural, a.status, a.body, a.err)
		}
		r.gen.learn(&r.gen.tokens, continueOf, a.body)
		r.gen.learn(&r.gen.pages, continueOf, get(own+"?limit=2", false).body)
		r.gen.learn(&r.gen.positions, idOf, get(own+"?watch=true", true).body)
	}
	return nil
}

// learn keeps what others may try.
func (g *generator) learn(in *[]string, what *regexp.Regexp, body []byte) {
	for _, found := range what.FindAllSubmatch(body, -1) {
		var s string
		if json.Unmarshal([]byte(`"`+string(found[1])+`"`), &s) == nil {
			*in = append(*in, url.QueryEscape(s))
		}
	}
}

func (r *run) admin() *caller {
	for _, c := range r.anyone {
		if c.all {
			return c
		}
	}
	panic("there is no administrator")
}

// ask asks until the time is over.
func (r *run) ask(ctx context.Context) error {
	if r.options.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.options.For)
		defer cancel()
	}
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
				if err := w.one(rand.New(rand.NewPCG(r.options.Seed, uint64(n)))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// worker makes one request at a time.
type worker struct {
	*run
	theirs *client
	ours   map[*mirror]*client
}

func (r *run) newWorker() *worker {
	w := &worker{run: r, theirs: &client{address: r.server, tls: r.tls}, ours: map[*mirror]*client{}}
	for _, m := range r.mirrors {
		w.ours[m] = &client{address: m.address, tls: m.tls}
	}
	return w
}

func (w *worker) close() {
	w.theirs.close()
	for _, c := range w.ours {
		c.close()
	}
}

// one makes up a request, asks and judges.
func (w *worker) one(rnd *rand.Rand) error {
	m := weighted(rnd, w.mirrors, func(m *mirror) int { return m.weight })
	as := w.local
	if !m.loopback {
		as = pick(rnd, w.anyone...)
		if chance(rnd, 3) {
			as = pick(rnd, w.world.callers[:3]...)
		}
	}
	p := w.gen.plan(rnd)
	x := w.exchange(p.build(w.gen), as, m)
	w.report.count(x)
	if errors.Is(x.theirs.err, errNoConnection) {
		return fmt.Errorf("the API server: %w", x.theirs.err)
	}
	for _, f := range w.world.judge(x, w.options.Bodies) {
		if w.report.known(x, f) {
			w.report.add(x, f)
			continue
		}
		w.report.add(w.shrink(p, x, f), f)
	}
	return nil
}

// shrink leaves out twists as long as the same is found.
func (w *worker) shrink(p plan, x *exchange, f finding) *exchange {
	for i := 0; i < len(p.twists); {
		less := p.without(i)
		y := w.exchange(less.build(w.gen), x.caller, x.mirror)
		same := false
		for _, g := range w.world.judge(y, w.options.Bodies) {
			same = same || g.kind == f.kind && y.ours.status == x.ours.status && y.theirs.status == x.theirs.status && f.about == g.about
		}
		if !same {
			i++
			continue
		}
		p, x = less, y
	}
	return x
}

// exchange asks both.
func (w *worker) exchange(q *request, as *caller, m *mirror) *exchange {
	x := &exchange{q: q, caller: as, mirror: m, info: understand(q), asked: q.ofAPI()}
	if as.all && writes(q.method) && (x.info == nil || !strings.HasPrefix(x.info.Resource, "selfsubject")) {
		// It would be done.
		if x.asked = false; m.passthrough {
			q.method, q.body = "GET", ""
		}
	}
	x.ours = w.ours[m].ask(q, q.bytes(q.target(true), m.address, as.authorization(), as.token))
	if x.asked {
		if m.loopback {
			// Whoever asks reads all that the mirror may, on behalf of whomever.
			as, q = w.admin(), q.withoutImpersonation()
		}
		x.theirs = w.theirs.ask(q, q.bytes(q.target(false), w.server, as.authorization(), as.token))
	}
	return x
}

func writes(method string) bool {
	return slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method)
}
