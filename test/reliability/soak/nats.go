package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/procfs"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
)

const (
	natsServers = 3
	// natsPatience is how long NATS may take to answer.
	natsPatience = time.Minute

	published       = "soak" // the name of the cluster on NATS
	logStream       = "TIDINGS_LOG_" + published
	snapshotsStream = "TIDINGS_SNAPSHOTS_" + published
	logSubject      = "tidings.log." + published + "."
)

// broker is a NATS server.
type broker struct {
	*part
	store string // its folder
	// routes are all ways between it and the other servers.
	routes []*faultproxy.TCP
}

// cutOff breaks the network between the server and the others, silently. Clients still reach all of them.
func (b *broker) cutOff() error {
	var errs []error
	for _, r := range b.routes {
		errs = append(errs, r.Stall())
	}
	return errors.Join(errs...)
}

// join mends the network.
func (b *broker) join() error {
	var errs []error
	for _, r := range b.routes {
		errs = append(errs, r.Heal())
	}
	return errors.Join(errs...)
}

// brokers are NATS servers that keep each stream together.
type brokers struct {
	all  []*broker
	ways []*faultproxy.TCP // between any two of them
	url  string            // of all
	conn *nats.Conn
	js   jetstream.JetStream
	dir  string
	copy string // of all stores, made earlier; empty: there is none
	made int    // copies
}

// startBrokers starts the NATS servers as parts of a run. The caller must call close, also after an
// error.
func (s *soak) startBrokers(ctx context.Context, dir string) (*brokers, error) {
	b := &brokers{dir: dir}
	out, err := exec.CommandContext(ctx, "go", "tool", "-n", "nats-server").Output()
	if err != nil {
		return b, fmt.Errorf("build nats-server: %w", withStderr(err))
	}
	binary := strings.TrimSpace(string(out))
	var addresses, routes, urls []string
	ways := make([][]string, natsServers) // from a server to the others
	for range natsServers {
		client, err := FreeAddress()
		if err != nil {
			return b, err
		}
		route, err := FreeAddress()
		if err != nil {
			return b, err
		}
		addresses, routes, urls = append(addresses, client), append(routes, route), append(urls, "nats://"+client)
		b.all = append(b.all, &broker{})
	}
	for i := range natsServers {
		for j := range natsServers {
			if i == j {
				continue
			}
			way, err := faultproxy.NewTCP(routes[j])
			if err != nil {
				return b, err
			}
			b.ways = append(b.ways, way)
			b.all[i].routes, b.all[j].routes = append(b.all[i].routes, way), append(b.all[j].routes, way)
			ways[i] = append(ways[i], "nats://"+way.Addr())
		}
	}
	for i, one := range b.all {
		name := fmt.Sprint("nats-", i)
		store, config, log := filepath.Join(dir, name), filepath.Join(dir, name+".conf"), filepath.Join(dir, name+".log")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream { store_dir: %q }\ncluster { name: soak, listen: %q, no_advertise: true, ping_interval: 2s, routes: [%s] }\n",
			name, addresses[i], store, routes[i], strings.Join(ways[i], ", "))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return b, err
		}
		one.store, one.part = store, &part{
			name: name, role: "nats", measured: usageOf,
			launch: func(ctx context.Context) (*Process, error) {
				p := &Process{log: log, ended: make(chan struct{}), client: &http.Client{}, cmd: exec.Command(binary, "-c", config)}
				return p, p.start(ctx, func(context.Context) bool { return accepts(urls[i]) })
			},
		}
		s.parts = append(s.parts, one.part)
	}
	if err := b.start(ctx); err != nil {
		return b, err
	}
	b.url = strings.Join(urls, ",")
	if b.conn, err = nats.Connect(b.url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(2*time.Second)); err != nil {
		return b, err
	}
	if b.js, err = jetstream.New(b.conn); err != nil {
		return b, err
	}
	return b, b.ready(ctx)
}

// accepts reports whether a server can be connected to.
func accepts(url string) bool {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err == nil {
		nc.Close()
	}
	return err == nil
}

// usageOf is the usage of a process as the system has it.
func usageOf(_ context.Context, p *Process) (Usage, error) {
	process, err := procfs.NewProc(p.PID())
	if err != nil {
		return Usage{}, err
	}
	stat, err := process.Stat()
	if err != nil {
		return Usage{}, err
	}
	files, err := process.FileDescriptorsLen()
	return Usage{RSS: uint64(stat.ResidentMemory()), FDs: uint64(files), CPU: stat.CPUTime()}, err
}

func (b *brokers) close() {
	if b.conn != nil {
		b.conn.Close()
	}
	for _, one := range b.all {
		if one.part != nil {
			_ = one.kill()
		}
	}
	for _, way := range b.ways {
		_ = way.Close()
	}
}

func (b *brokers) start(ctx context.Context) error {
	for _, one := range b.all {
		if err := one.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tryTime is how long one request to NATS may take. It is lost while a leader is elected.
const tryTime = 2 * time.Second

// eventually repeats a request that fails while leaders are elected.
func eventually(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, natsPatience)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, tryTime)
		err := do(try)
		done()
		if err == nil || !Sleep(ctx, lookEvery) {
			return err
		}
	}
}

// ready waits until the servers answer together.
func (b *brokers) ready(ctx context.Context) error {
	return eventually(ctx, func(ctx context.Context) error {
		_, err := b.js.AccountInfo(ctx)
		return err
	})
}

// stop ends all servers.
func (b *brokers) stop(how func(*part) error) error {
	var errs []error
	for _, one := range b.all {
		errs = append(errs, how(one.part))
	}
	return errors.Join(errs...)
}

// of returns the server that a part is.
func (b *brokers) of(p *part) *broker {
	return b.all[slices.IndexFunc(b.all, func(one *broker) bool { return one.part == p })]
}

// leader returns the server that leads a stream.
func (b *brokers) leader(ctx context.Context, stream string) (found *broker, err error) {
	err = eventually(ctx, func(ctx context.Context) error {
		s, err := b.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		for _, one := range b.all {
			if s.CachedInfo().Cluster != nil && one.name == s.CachedInfo().Cluster.Leader {
				found = one
				return nil
			}
		}
		return fmt.Errorf("stream %s has no leader", stream)
	})
	return found, err
}

// save copies the stores, which no server may use meanwhile. It returns the copy made before,
// empty if there is none.
func (b *brokers) save() (before string, err error) {
	before = b.copy
	b.made++
	b.copy = filepath.Join(b.dir, fmt.Sprint("copy-", b.made))
	for _, one := range b.all {
		if err := os.CopyFS(filepath.Join(b.copy, one.name), os.DirFS(one.store)); err != nil {
			return "", err
		}
	}
	return before, nil
}

// restore puts a copy in place of the stores, which no server may use meanwhile.
func (b *brokers) restore(from string) error {
	for _, one := range b.all {
		if err := os.RemoveAll(one.store); err != nil {
			return err
		}
		if err := os.CopyFS(one.store, os.DirFS(filepath.Join(from, one.name))); err != nil {
			return err
		}
	}
	return os.RemoveAll(from)
}
