package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/procfs"
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
}

// brokers are NATS servers that keep each stream together.
type brokers struct {
	all  []*broker
	url  string // of all
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
	for range natsServers {
		client, err := FreeAddress()
		if err != nil {
			return b, err
		}
		route, err := FreeAddress()
		if err != nil {
			return b, err
		}
		addresses, routes, urls = append(addresses, client), append(routes, "nats://"+route), append(urls, "nats://"+client)
	}
	for i := range natsServers {
		name := fmt.Sprint("nats-", i)
		store, config, log := filepath.Join(dir, name), filepath.Join(dir, name+".conf"), filepath.Join(dir, name+".log")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream { store_dir: %q }\ncluster { name: soak, listen: %q, routes: [%s] }\n",
			name, addresses[i], store, strings.TrimPrefix(routes[i], "nats://"), strings.Join(routes, ", "))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return b, err
		}
		b.all = append(b.all, &broker{store: store, part: &part{
			name: name, role: "nats", measured: usageOf,
			launch: func(ctx context.Context) (*Process, error) {
				p := &Process{log: log, ended: make(chan struct{}), client: &http.Client{}, cmd: exec.Command(binary, "-c", config)}
				return p, p.start(ctx, func(context.Context) bool { return accepts(urls[i]) })
			},
		}})
		s.parts = append(s.parts, b.all[i].part)
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
		_ = one.kill()
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
