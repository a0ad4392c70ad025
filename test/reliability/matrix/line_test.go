package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/matrix/library"
	"github.com/tidings-io/tidings/informer"
)

// line is one way from a user to the API server, with a fault proxy of its own in
// between: an informer of the library, or a server over a mirror.
type line struct {
	*rig
	name     string
	began    time.Time // when everybody had been told what there is
	proxy    *faultproxy.Proxy
	wire     *faultproxy.TCP
	config   *rest.Config
	log      *logbook
	requests atomic.Int64 // that were tried, also in vain
	replays  []*replay
	running  sync.WaitGroup

	start   func()
	status  func() informer.Status
	changed func() <-chan struct{} // nil: look now and then
	version func(name string) string
	objects func() map[string]string // all of the namespace: name → JSON
	reads   func() string            // what somebody gets who reads now
	metrics func() string

	mu   sync.Mutex
	seen []informer.Status // every state that was seen
}

func (r *rig) newLine(name string) *line {
	l := &line{rig: r, name: name, log: &logbook{}}
	var err error
	l.proxy, err = faultproxy.New(r.upstream)
	r.must(err)
	r.Cleanup(func() { _ = l.proxy.Close() })
	l.wire, err = faultproxy.NewTCP(l.proxy.Addr())
	r.must(err)
	r.Cleanup(func() { _ = l.wire.Close() })
	l.config = l.wire.Config(l.proxy.Config(r.upstream))
	l.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			l.requests.Add(1)
			return next.RoundTrip(req)
		})
	})
	return l
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// observe notes every state of the line.
func (l *line) observe() {
	for l.ctx.Err() == nil {
		var changed <-chan struct{}
		if l.changed != nil {
			changed = l.changed()
		}
		s := l.status()
		l.mu.Lock()
		if n := len(l.seen); n == 0 || l.seen[n-1].Phase != s.Phase || l.seen[n-1].LastErrorTime != s.LastErrorTime {
			l.seen = append(l.seen, s)
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-l.ctx.Done():
		}
	}
}

// states are those since the n-th.
func (l *line) states(n int) []informer.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen[min(n, len(l.seen)):])
}

// library is an informer of the row's namespace that decodes protobuf, or JSON
// where the resource is a custom one.
func (r *rig) library(opts ...informer.Option) *line {
	l := r.newLine("library")
	c, err := cluster.New("prod", l.config)
	r.must(err)
	p := newReplay("handler")
	p.older = r.row.Restores
	l.replays = append(l.replays, p)
	opts = append([]informer.Option{informer.InNamespace(r.namespace), informer.Logger(slog.New(l.log)), informer.PageSize(5)}, opts...)
	var inf *library.Informer
	if r.kind.custom {
		inf, err = library.Custom(c, r.kind.full(), p.event, opts...)
	} else {
		inf, err = library.ConfigMaps(c, p.event, opts...)
	}
	r.must(err)
	l.status, l.changed = inf.Status, inf.Changed
	l.start = func() {
		l.running.Go(func() {
			for l.ctx.Err() == nil { // one who is refused comes back, as a pod that is restarted does
				_ = inf.Run(l.ctx)
				select {
				case <-l.ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
		l.running.Go(l.observe)
	}
	l.version = func(name string) string { return inf.Version(r.namespace, name) }
	l.objects = func() map[string]string {
		objects, err := inf.Objects(r.namespace)
		r.must(err)
		out := map[string]string{}
		for _, raw := range objects {
			var o object
			r.must(json.Unmarshal(raw, &o))
			out[o.Metadata.Name] = canonical(r, raw)
		}
		return out
	}
	return l
}

// serve is a server over a mirror of the resource, and two who watch through it.
func (r *rig) serve() *line {
	l := r.newLine("server")
	logger := slog.New(l.log)
	// To the server it is a cluster of this namespace alone: a fault is one of the
	// row's own events, and nobody has to read what the other rows write.
	l.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == r.kind.everywhere() {
				req = req.Clone(req.Context())
				req.URL.Path = r.kind.collection(r.namespace)
			}
			return next.RoundTrip(req)
		})
	})
	m, err := mirror.New(mirror.Options{Resources: []string{r.kind.full()}, Logger: logger, Wait: 300 * time.Millisecond})
	r.must(err)
	s, err := server.New(m, server.Options{Logger: logger, ShutdownTimeout: time.Second})
	r.must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	base := "http://" + listener.Addr().String()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}}
	get := func(path string) (int, []byte) {
		resp, err := client.Get(base + path)
		if err != nil {
			r.Error(err)
			return 0, nil
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			r.Error(err)
		}
		return resp.StatusCode, body
	}
	ours := fmt.Sprintf("/%s/%s/%s/%s", r.kind.groupName(), r.kind.version, r.kind.plural, r.namespace)

	l.start = func() {
		l.running.Go(func() { _ = s.Serve(l.ctx, listener) })
		r.must(m.Set(l.ctx, map[string]*rest.Config{"prod": l.config}))
		l.running.Go(l.observe)
		sse, kube := newReplay("event source"), newReplay("Kubernetes watch")
		sse.older, kube.older = r.row.Restores, r.row.Restores
		l.replays = append(l.replays, sse, kube)
		l.running.Go(func() {
			follow(l.ctx, func() error { return eventSource(l.ctx, client, base+ours+"?watch=true", sse) })
		})
		l.running.Go(func() {
			w := &kubeWatch{client: client, url: base + r.kind.collection(r.namespace), replay: kube}
			follow(l.ctx, func() error { return w.step(l.ctx) })
		})
	}
	r.Cleanup(func() {
		client.CloseIdleConnections()
		r.must(m.Close(context.Background()))
	})
	l.status = func() informer.Status {
		for _, c := range m.Status().Clusters {
			if len(c.Resources) == 0 {
				continue
			}
			res := c.Resources[0]
			if res.Err != nil && res.LastError == nil {
				res.Status.LastError, res.Status.LastErrorTime = res.Err, time.Unix(1, 0)
			}
			return res.Status
		}
		return informer.Status{Phase: informer.Stopped}
	}
	l.objects = func() map[string]string {
		code, body := get(ours)
		if code != http.StatusOK {
			r.Errorf("list through the server: %d %s", code, body)
		}
		var list struct{ Data []json.RawMessage }
		r.must(json.Unmarshal(body, &list))
		out := map[string]string{}
		for _, raw := range list.Data {
			var o object
			r.must(json.Unmarshal(raw, &o))
			out[o.Metadata.Name] = canonical(r, raw)
		}
		return out
	}
	l.version = func(name string) string {
		code, body := get(ours + "/" + name)
		var one struct{ Data object }
		if code != http.StatusOK || json.Unmarshal(body, &one) != nil {
			return ""
		}
		return one.Data.Metadata.ResourceVersion
	}
	l.reads = func() string {
		code, body := get(ours)
		var problem struct{ Reason string }
		if json.Unmarshal(body, &problem) == nil && code != http.StatusOK {
			r.Logf("a reader gets %d %.300s", code, body)
		}
		return strings.TrimSpace(fmt.Sprint(code, " ", problem.Reason))
	}
	l.metrics = func() string {
		_, body := get("/metrics")
		return string(body)
	}
	return l
}

// follow calls step until ctx ends, not too often where it fails.
func follow(ctx context.Context, step func() error) {
	for ctx.Err() == nil {
		if step() != nil {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// canonical is the JSON of an object without what the informer leaves out.
func canonical(r *rig, raw []byte) string {
	var o map[string]any
	r.must(json.Unmarshal(raw, &o))
	if meta, ok := o["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	delete(o, "kind")
	delete(o, "apiVersion")
	out, err := json.Marshal(o)
	r.must(err)
	return string(out)
}

// logbook keeps what is logged, as slog's text.
type logbook struct {
	mu      sync.Mutex
	records []record
	text    strings.Builder
}

type record struct {
	level   slog.Level
	message string
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }

func (b *logbook) Handle(ctx context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, record{r.Level, r.Message})
	return slog.NewTextHandler(&b.text, &slog.HandlerOptions{Level: slog.LevelDebug}).Handle(ctx, r)
}

func (b *logbook) WithAttrs(attrs []slog.Attr) slog.Handler { return tagged{b, attrs} }
func (b *logbook) WithGroup(string) slog.Handler            { return b }

func (b *logbook) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)
}

// since are the different lines at info and above after the n-th.
func (b *logbook) since(n int) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.records[n:] {
		if line := r.level.String() + " " + r.message; r.level >= slog.LevelInfo && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// tagged is a logbook under attributes.
type tagged struct {
	*logbook
	attrs []slog.Attr
}

func (t tagged) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	r.AddAttrs(t.attrs...)
	return t.logbook.Handle(ctx, r)
}
