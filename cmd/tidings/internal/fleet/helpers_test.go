package fleet_test

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// rig has a NATS server and a cluster in memory.
type rig struct {
	testing.TB
	ctx      context.Context
	nats     *server.Server
	replicas int                     // of a stream; 0: 1
	dir      string                  // of its store
	size     int64                   // of the log of a publisher; 0: as it is
	past     []fakeapi.Change        // of the config maps
	retain   int                     // the events that a publisher retains, and its backlog; 0: as it is
	leafPort int                     // for leaf nodes; 0: none
	direct   map[string]*rest.Config // that replicas reach themselves
	api      *fakeapi.Cluster
	cfg      *rest.Config
	log      *slog.Logger
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, ctx: t.Context(), api: fakeapi.New(fakeapi.Options{}), log: slog.New(slog.DiscardHandler)}
	if os.Getenv("FLEET_LOG") != "" {
		r.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg, stop := fakeapi.InProcess(r.api)
	t.Cleanup(stop)
	r.cfg = cfg
	r.dir = t.TempDir()
	r.start(server.RANDOM_PORT)
	r.Cleanup(r.shutdown)
	return r
}

// start starts the NATS server.
func (r *rig) start(port int) {
	r.Helper()
	r.run(&server.Options{ServerName: "one", Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: r.dir, NoSigs: true, NoLog: true})
}

// run starts a NATS server that takes the place of the one before.
func (r *rig) run(opts *server.Options) {
	r.Helper()
	s, err := server.NewServer(opts)
	r.must(err)
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		r.Fatal("the NATS server does not start")
	}
	r.nats = s
}

func (r *rig) shutdown() {
	r.nats.Shutdown()
	r.nats.WaitForShutdown()
}

// restart restarts the NATS server, after something was done to its store.
func (r *rig) restart(meanwhile func()) {
	r.Helper()
	port := r.nats.Addr().(*net.TCPAddr).Port
	r.shutdown()
	meanwhile()
	r.start(port)
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) connect(opts ...nats.Option) *nats.Conn {
	r.Helper()
	nc, err := nats.Connect(r.nats.ClientURL(), append(opts, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))...)
	r.must(err)
	r.Cleanup(nc.Close)
	return nc
}

func (r *rig) js() jetstream.JetStream {
	r.Helper()
	js, err := jetstream.New(r.connect())
	r.must(err)
	return js
}

// part is a mirror with its connection.
type part struct {
	*rig
	mirror *mirror.Mirror
	reader *read.Reader
	conn   *nats.Conn
	pub    *fleet.Publisher // nil: a replica
	stop   func()
}

// publisher starts a mirror that publishes the cluster under the name "prod".
func (r *rig) publisher(name string, opts ...nats.Option) *part {
	r.Helper()
	nc := r.connect(append(opts, nats.Name(name))...)
	reader := read.New(read.Options{})
	pub, err := fleet.NewPublisher(nc, fleet.PublisherOptions{Name: name, StreamOptions: fleet.StreamOptions{LogSize: r.size, Replicas: r.replicas}, Fresh: reader.Fresh, Logger: r.log.With("publisher", name)})
	r.must(err)
	p := r.part(mirror.Options{Resources: []string{"configmaps", mirror.Everything}, Retain: r.retain, Backlog: r.retain, Publisher: pub, Logger: r.log.With("part", name)}, reader)
	r.must(p.mirror.Set(r.ctx, map[string]*rest.Config{"prod": r.cfg}))
	p.conn, p.pub = nc, pub
	closeMirror := p.stop
	p.stop = sync.OnceFunc(func() {
		closeMirror()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := pub.Wait(ctx); err != nil {
			r.Error(err)
		}
		nc.Close()
	})
	r.Cleanup(p.stop)
	return p
}

// replica starts a mirror that follows what is published.
func (r *rig) replica(name string, opts ...nats.Option) *part {
	r.Helper()
	nc := r.connect(append(opts, nats.Name(name))...)
	f, err := fleet.NewFollower(nc, fleet.FollowerOptions{Direct: r.directs(), Logger: r.log.With("follower", name)})
	r.must(err)
	p := r.part(mirror.Options{Logger: r.log.With("part", name)}, read.New(read.Options{}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.mirror.Follow(ctx, f.Clusters(ctx)); err != nil {
			r.Error(err)
		}
	}()
	p.conn = nc
	closeMirror := p.stop
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		closeMirror()
		f.Close()
		nc.Close()
	})
	r.Cleanup(p.stop)
	return p
}

// directs yields the clusters that replicas reach themselves.
func (r *rig) directs() iter.Seq2[map[string]*rest.Config, error] {
	if r.direct == nil {
		return nil
	}
	return func(yield func(map[string]*rest.Config, error) bool) { yield(r.direct, nil) }
}

func (r *rig) part(opts mirror.Options, reader *read.Reader) *part {
	r.Helper()
	m, err := mirror.New(opts)
	r.must(err)
	return &part{rig: r, mirror: m, reader: reader, stop: func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			r.Error(err)
		}
	}}
}

// put sets the value of a config map and returns its resourceVersion.
func (r *rig) put(name, value string) string {
	r.Helper()
	out, err := r.api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"v": value}})
	r.must(err)
	return out.GetResourceVersion()
}

// eventually waits until a condition holds.
func (r *rig) eventually(what string, holds func() error) {
	r.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// query returns a query for the config maps of the cluster.
func (p *part) query(verb read.Verb) (*read.Query, error) {
	c, err := p.mirror.Cluster("prod")
	if err != nil {
		return nil, err
	}
	res, err := c.ResourceFor(p.ctx, configMaps)
	if err != nil {
		return nil, err
	}
	q, err := read.NewQuery(read.Params{Cluster: c, Resource: res.GVR(), Verb: verb})
	if err == nil {
		err = q.Bind(res)
	}
	return q, err
}

// list returns the values of the config maps in a state that matches.
func (p *part) list(match read.Match) (map[string]string, error) { return p.listIn(p.ctx, match) }

func (p *part) listIn(ctx context.Context, match read.Match) (map[string]string, error) {
	q, err := p.query(read.List)
	if err != nil {
		return nil, err
	}
	s, err := p.reader.State(ctx, q, match, 0)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	found, err := s.List(ctx, "", 0)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, o := range found {
		values[o.GetName()] = valueOf(o.JSON())
	}
	return values, nil
}
