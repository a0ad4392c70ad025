package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	fleetClusters = 100
	fleetRate     = 2000 // changes a second, in all
)

// fleetLine is many clusters that one mirror publishes on NATS JetStream and others follow.
var fleetLine = line{
	name: "fleet",
	what: fmt.Sprintf("%d clusters of %%d pods each, published on NATS, with %d changes a second in all", fleetClusters, fleetRate),
	size: 10_000, quick: 20,
	setup: serveFleet,
	claims: []claim{
		{22, "fleet: a replica of 100 clusters of 10,000 pods, from its start until it is ready: s", "start s", "replica", nobody, atMost(60)},
		{22, "the same, memory of the replica then, with GOMEMLIMIT=1200MiB (RSS): MB", "RSS MB then", "small replica", nobody, atMost(1300)},
		{22, "the same, most memory until then: MB", "peak RSS MB of it", "small replica", nobody, atMost(1300)},
		{22, "the same, without a limit: MB", "RSS MB then", "replica", nobody, target{}},
		{22, "the same, memory after 30,000 changes: MB", "RSS MB", "replica", nobody, target{}},
		{22, "after ten seconds without NATS, with a change a second in each cluster, until it has what there was when NATS came back: s", "resume s", "replica", nobody, atMost(1)},
		{22, "the same, with 2,000 changes a second in all", "resume at 2,000/s s", "replica", nobody, target{}},
		{22, "2,000 changes a second in all: from the cluster to a watch of the replica, p99, ms", "lag p99 ms", "replica", nobody, atMost(100)},
		{22, "the same, median, ms", "lag p50 ms", "replica", nobody, target{}},
		{22, "the same, CPU of the replica a change, without readers, µs", "CPU µs/change", "replica", nobody, atMost(60)},
		{22, "the same, CPU of a mirror that publishes, beside one that does not, a change, µs", "CPU µs/change", "publisher", "mirror", target{}},
		{22, "bytes of a snapshot of 10,000 pods on the stream: MB", "snapshot MB/cluster", "publisher", nobody, target{}},
		{22, "most changes a second that it publishes", "most changes/s", "publisher", nobody, target{}},
		{22, "2,000 changes a second: bytes on the stream, times those of the changes compressed with zstd", "bytes / zstd", "publisher", nobody, atMost(1.2)},
	},
	sides: []side{
		{"mirror", func(ctx context.Context, _ int) (figures, error) {
			return onFleet(ctx, func(f *fleet) (figures, error) {
				m, err := f.serve(ctx, "--kubeconfig", f.kubeconfig, "--context", "*")
				if err != nil {
					return nil, err
				}
				defer m.end()
				return f.perChange(ctx, m)
			})
		}},
		{"publisher", func(ctx context.Context, _ int) (figures, error) {
			return onFleet(ctx, func(f *fleet) (figures, error) {
				p, err := f.publisher(ctx)
				if err != nil {
					return nil, err
				}
				defer p.end()
				snapshots, err := f.streamBytes(ctx, "TIDINGS_SNAPSHOTS_")
				if err != nil {
					return nil, err
				}
				out, err := f.perChange(ctx, p)
				if err != nil {
					return nil, err
				}
				out["snapshot MB/cluster"] = snapshots / fleetClusters / 1e6
				out["most changes/s"], err = f.mostChanges(ctx, p)
				return out, err
			})
		}},
		{"small replica", func(ctx context.Context, _ int) (figures, error) {
			return onFleet(ctx, func(f *fleet) (figures, error) {
				p, err := f.publisher(ctx)
				if err != nil {
					return nil, err
				}
				defer p.end()
				r, out, err := f.startReplica(ctx, f.nats, "GOMEMLIMIT=1200MiB")
				if err == nil {
					r.end()
				}
				return out, err
			})
		}},
		{"replica", func(ctx context.Context, _ int) (figures, error) {
			return onFleet(ctx, func(f *fleet) (figures, error) {
				p, err := f.publisher(ctx)
				if err != nil {
					return nil, err
				}
				defer p.end()
				return f.replica(ctx)
			})
		}},
	},
}

// serveFleet starts the clusters, and a NATS server.
func serveFleet(_ context.Context, size int) (env []string, teardown func() error, err error) {
	s, err := startSources(fleetClusters, size)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "tidings-bench-")
	if err != nil {
		return nil, nil, err
	}
	config := clientcmdapi.NewConfig()
	for i := range fleetClusters {
		name := fmt.Sprintf("c%03d", i)
		config.Clusters[name] = &clientcmdapi.Cluster{Server: fmt.Sprintf("http://%s/%d", s.address, i)}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	kubeconfig := filepath.Join(dir, "sources")
	clean := func() error { return errors.Join(s.server.Close(), os.RemoveAll(dir)) }
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	ns, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		return nil, nil, errors.Join(errors.New("the NATS server does not start"), clean())
	}
	return []string{"FLEET_SOURCES=" + s.address, "FLEET_KUBECONFIG=" + kubeconfig, "FLEET_NATS=" + ns.Addr().String(), "FLEET_PODS=" + strconv.Itoa(size)}, func() error {
		ns.Shutdown()
		ns.WaitForShutdown()
		return clean()
	}, nil
}

// fleet is what serveFleet has started.
type fleet struct {
	sources, kubeconfig, nats string
	size                      int
}

// onFleet measures something, and deletes the streams afterwards.
func onFleet(ctx context.Context, measure func(*fleet) (figures, error)) (figures, error) {
	f := &fleet{sources: os.Getenv("FLEET_SOURCES"), kubeconfig: os.Getenv("FLEET_KUBECONFIG"), nats: os.Getenv("FLEET_NATS")}
	if _, err := fmt.Sscan(os.Getenv("FLEET_PODS"), &f.size); err != nil {
		return nil, fmt.Errorf("FLEET_PODS: %w", err)
	}
	if err := f.setRate(ctx, 0); err != nil {
		return nil, err
	}
	out, err := measure(f)
	return out, errors.Join(err, f.setRate(ctx, 0), f.deleteStreams(ctx))
}

// streams calls a function for each stream.
func (f *fleet) streams(ctx context.Context, each func(jetstream.JetStream, *jetstream.StreamInfo) error) error {
	nc, err := nats.Connect(f.nats)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	list := js.ListStreams(ctx)
	var all []*jetstream.StreamInfo
	for info := range list.Info() {
		all = append(all, info)
	}
	err = list.Err()
	for _, info := range all {
		err = errors.Join(err, each(js, info))
	}
	return err
}

func (f *fleet) deleteStreams(ctx context.Context) error {
	return f.streams(ctx, func(js jetstream.JetStream, info *jetstream.StreamInfo) error {
		return js.DeleteStream(ctx, info.Config.Name)
	})
}

// streamBytes returns the bytes in the streams with a prefix.
func (f *fleet) streamBytes(ctx context.Context, prefix string) (total float64, err error) {
	err = f.streams(ctx, func(_ jetstream.JetStream, info *jetstream.StreamInfo) error {
		if strings.HasPrefix(info.Config.Name, prefix) {
			total += float64(info.State.Bytes)
		}
		return nil
	})
	return total, err
}

// setRate sets the number of changes a second of all clusters together.
func (f *fleet) setRate(ctx context.Context, perSecond int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("http://%s/rate/%d", f.sources, perSecond/fleetClusters), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// versions returns the version of each cluster, and what a change takes that is compressed with
// zstd.
func (f *fleet) versions() (all [fleetClusters]int64, packed float64, err error) {
	resp, err := http.Get("http://" + f.sources + "/versions")
	if err != nil {
		return all, 0, err
	}
	defer resp.Body.Close()
	if _, err = fmt.Fscan(resp.Body, &packed); err != nil {
		return all, 0, err
	}
	for i := range all {
		if _, err := fmt.Fscan(resp.Body, &all[i]); err != nil {
			return all, 0, err
		}
	}
	return all, packed, nil
}

func sum(all [fleetClusters]int64) (n int64) {
	for _, v := range all {
		n += v
	}
	return n
}

// serve starts a mirror and waits until it has the pods of all clusters.
func (f *fleet) serve(ctx context.Context, args ...string) (*server, error) {
	s, err := newServer(ctx, append(args, "--resource", "pods")...)
	if err != nil {
		return nil, err
	}
	return s, f.await(ctx, s)
}

// await starts a mirror and waits until it has the pods of all clusters. If it cannot, it ends it.
func (f *fleet) await(ctx context.Context, s *server) error {
	err := s.start(ctx)
	if err == nil {
		err = await(ctx, 5*time.Minute, func() error {
			if n, err := s.sum("tidings_informer_objects"); err != nil || int(n) != fleetClusters*f.size {
				return fmt.Errorf("the mirror has %.0f pods: %w\n%s", n, err, s.log.String())
			}
			if n, err := s.sum("tidings_informer_synced"); err != nil || int(n) != fleetClusters {
				return fmt.Errorf("the mirror has synced %.0f informers: %w\n%s", n, err, s.log.String())
			}
			return nil
		})
	}
	if err != nil {
		s.end()
	}
	return err
}

// publisher starts a mirror that publishes, and waits until there is a snapshot of everything.
func (f *fleet) publisher(ctx context.Context) (*server, error) {
	p, err := f.serve(ctx, "--kubeconfig", f.kubeconfig, "--context", "*", "--publish", "nats://"+f.nats, "--stream-size", "64Mi")
	if err != nil {
		return nil, err
	}
	err = await(ctx, 5*time.Minute, func() error {
		if n, err := p.sum("tidings_publish_snapshots_total"); err != nil || int(n) < fleetClusters {
			return fmt.Errorf("the publisher has made %.0f snapshots: %w\n%s", n, err, p.log.String())
		}
		return nil
	})
	if err != nil {
		p.end()
	}
	return p, err
}

// time is how long things are measured for.
func (f *fleet) time() time.Duration { return period(f.size, 10_000) * 3 }

// perChange measures what changes cost a mirror.
func (f *fleet) perChange(ctx context.Context, m *server) (figures, error) {
	if err := quiet(ctx, asked{pid: m.cmd.Process.Pid}); err != nil {
		return nil, err
	}
	if err := f.setRate(ctx, fleetRate); err != nil {
		return nil, err
	}
	time.Sleep(f.time() / 5)
	cpu := cpuOf(m.cmd.Process.Pid)
	before, packed, err := f.versions()
	if err != nil {
		return nil, err
	}
	bytes, err := m.sum("tidings_publish_bytes_total")
	if err != nil {
		return nil, err
	}
	time.Sleep(f.time())
	spent := cpuOf(m.cmd.Process.Pid) - cpu
	now, _, err := f.versions()
	if err != nil {
		return nil, err
	}
	bytesNow, err := m.sum("tidings_publish_bytes_total")
	changes := float64(sum(now) - sum(before))
	return figures{
		"CPU µs/change": spent * 1e6 / changes, "bytes/change": (bytesNow - bytes) / changes, "bytes / zstd": (bytesNow - bytes) / changes / packed,
		"changes/s": changes / f.time().Seconds(), "RSS MB": rssOf(m.cmd.Process.Pid) / 1024,
	}, err
}

// mostChanges returns how many changes a second a mirror publishes when there are too many.
func (f *fleet) mostChanges(ctx context.Context, p *server) (float64, error) {
	if err := f.setRate(ctx, 50*fleetRate); err != nil {
		return 0, err
	}
	time.Sleep(f.time() / 5)
	before, err := p.sum("tidings_publish_changes_total")
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	time.Sleep(f.time() / 3)
	now, err := p.sum("tidings_publish_changes_total")
	return (now - before) / time.Since(begun).Seconds(), err
}

// startReplica starts a mirror that follows the others, and measures that.
func (f *fleet) startReplica(ctx context.Context, nats string, env ...string) (*server, figures, error) {
	r, err := newServer(ctx, "--from", "nats://"+nats, "--resource", "pods")
	if err != nil {
		return nil, nil, err
	}
	r.cmd.Env = append(os.Environ(), env...)
	begun := time.Now()
	if err := f.await(ctx, r); err != nil {
		return nil, nil, err
	}
	took := time.Since(begun)
	return r, figures{"start s": took.Seconds(), "RSS MB then": rssOf(r.cmd.Process.Pid) / 1024, "peak RSS MB of it": peakRSSOf(r.cmd.Process.Pid)}, nil
}

// replica measures a mirror that follows the others.
func (f *fleet) replica(ctx context.Context) (figures, error) {
	way, err := newGate(f.nats)
	if err != nil {
		return nil, err
	}
	defer way.Close()
	r, out, err := f.startReplica(ctx, way.Addr().String())
	if err != nil {
		return nil, err
	}
	defer r.end()
	spent, err := f.perChange(ctx, r)
	if err != nil {
		return nil, err
	}
	out["CPU µs/change"], out["RSS MB"] = spent["CPU µs/change"], spent["RSS MB"]

	readers, err := f.watch(ctx, r)
	if err != nil {
		return nil, err
	}
	defer readers.close()
	time.Sleep(f.time() / 5)
	lags, err := readers.time(8 * f.time()) // NATS writes its files through every two minutes
	if err != nil {
		return nil, err
	}
	out["lag p50 ms"], out["lag p99 ms"], out["lag max ms"] = lags[len(lags)/2], lags[len(lags)*99/100], lags[len(lags)-1]

	for _, rate := range []int{fleetClusters, fleetRate} {
		figure := "resume s"
		if rate == fleetRate {
			figure = "resume at 2,000/s s"
		}
		if err := f.setRate(ctx, rate); err != nil {
			return nil, err
		}
		if now, _, err := f.versions(); err != nil {
			return nil, err
		} else if err := await(ctx, time.Minute, func() error { return readers.have(now) }); err != nil {
			return nil, err
		}
		way.set(false)
		time.Sleep(f.time() * 2 / 3)
		way.set(true)
		begun := time.Now()
		back, _, err := f.versions()
		if err != nil {
			return nil, err
		}
		if err := await(ctx, 2*time.Minute, func() error { return readers.have(back) }); err != nil {
			return nil, fmt.Errorf("%w\nthe replica has %v and says\n%s", err, out, r.log.String())
		}
		out[figure] = time.Since(begun).Seconds()
	}
	return out, nil
}
