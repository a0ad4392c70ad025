package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// fleetFlags are the flags of a server that publishes its clusters on NATS, or follows those
// of others.
type fleetFlags struct {
	natsFlags
	streamFlags
	publish, as, from string
	stream            string // of the demo
	clusters          int    // of the demo
}

const streamEmbedded = "embedded"

func (f *fleetFlags) flags(g *globals, cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.publish, "publish", "", "`URL` of NATS, such as nats://nats:4222, to publish the clusters on for other mirrors; separate several servers by commas")
	fs.StringVar(&f.from, "from", "", "`URL` of NATS to take the published clusters from, instead of a kubeconfig; clusters that --kubeconfig has under the same name are asked directly about callers and their rights, others through their publishers")
	fs.StringVar(&f.as, "publish-as", "", "`name` of the cluster for the mirrors that follow it (default: that of its context)")
	f.natsFlags.flags(g, cmd)
	f.streamFlags.flags(cmd)
	fs.StringVar(&f.stream, "stream", "", "embedded: with --demo, publish the demo on a NATS server in this process and follow it from there")
	fs.IntVar(&f.clusters, "clusters", 1, "`number` of demo clusters, with --stream embedded")
	g.exclusive(cmd, "a mirror publishes the clusters that it is connected to", "publish", "from")
	g.exclusive(cmd, "all published clusters are followed", "from", "context")
	g.exclusive(cmd, "the clusters come from NATS", "from", "demo")
	g.exclusive(cmd, "a mirror that follows others has no connection to forward to", "from", "passthrough")
	g.exclusive(cmd, "the embedded stream is for this process only", "stream", "publish", "from")
	g.needs("publish-as", "publish")
	g.needs("stream", "demo")
	g.needs("clusters", "stream")
}

func (f *fleetFlags) check(g *globals, users bool) error {
	switch {
	case f.as != "" && (len(g.contexts) > 1 || len(g.contexts) == 1 && strings.Contains(g.contexts[0], "*")):
		return errors.New("--publish-as names one cluster, and --context names several: those are published under their own names")
	case f.stream != "" && f.stream != streamEmbedded:
		return fmt.Errorf("--stream %s: there is %s only", f.stream, streamEmbedded)
	case f.clusters < 1 || f.clusters > 20:
		return fmt.Errorf("--clusters %d: give a number from 1 to 20", f.clusters)
	case f.from != "" && users:
		return errors.New("--write-kubeconfig-users has the users of your kubeconfig, and --from uses none")
	}
	for _, url := range strings.Split(cmp.Or(f.publish, f.from), ",") {
		if flag := "--publish"; url != "" && !strings.Contains(url, "://") {
			if f.from != "" {
				flag = "--from"
			}
			return fmt.Errorf("%s %s: give a URL such as nats://%s", flag, url, url)
		}
	}
	return f.streamFlags.check()
}

// clusterSets are the clusters to mirror, again whenever they change.
type clusterSets = iter.Seq2[map[string]*rest.Config, error]

// fleetLink is what connects a server to NATS.
type fleetLink struct {
	sets      clusterSets // the clusters to mirror; nil: those of the kubeconfig or the demo
	publisher *fleet.Publisher
	follower  *fleet.Follower
	closing   []func() error
}

// close closes the connection. The mirror must be closed.
func (l *fleetLink) close() error {
	var errs []error
	for _, end := range slices.Backward(l.closing) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

func (l *fleetLink) later(end func()) {
	l.closing = append(l.closing, func() error { end(); return nil })
}

// open connects a server to NATS as its flags say. The caller must close the result, also after
// an error.
func (f *fleetFlags) open(ctx context.Context, g *globals) (*fleetLink, error) {
	l := &fleetLink{}
	switch {
	case f.publish != "":
		nc, err := f.connect(f.publish, g.log, false)
		if err != nil {
			return l, fmt.Errorf("--publish: %w", err)
		}
		l.later(nc.Close)
		return l, l.publish(ctx, f, nc, g.log)
	case f.from != "":
		nc, err := f.connect(f.from, g.log, false)
		if err != nil {
			return l, fmt.Errorf("--from: %w", err)
		}
		l.later(nc.Close)
		var direct clusterSets
		if g.kubeconfig != "" {
			direct = cluster.Watch(ctx, g.kubeconfig, []string{"*"})
		}
		return l, l.follow(ctx, nc, direct, g.log)
	case f.stream == streamEmbedded:
		return l, f.embedded(ctx, g, l)
	}
	return l, nil
}

// publish publishes what a mirror has.
func (l *fleetLink) publish(ctx context.Context, f *fleetFlags, nc *nats.Conn, log *slog.Logger) (err error) {
	l.publisher, err = fleet.NewPublisher(nc, fleet.PublisherOptions{
		As: f.as, StreamOptions: f.options(f.stream == streamEmbedded), Fresh: read.New(read.Options{}).Fresh, Logger: log,
	})
	if err != nil {
		return err
	}
	l.closing = append(l.closing, func() error {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return l.publisher.Wait(patience)
	})
	return nil
}

// follow mirrors what is published.
func (l *fleetLink) follow(ctx context.Context, nc *nats.Conn, direct clusterSets, log *slog.Logger) (err error) {
	if l.follower, err = fleet.NewFollower(nc, fleet.FollowerOptions{Direct: direct, Logger: log}); err == nil {
		l.later(l.follower.Close)
		l.sets = l.follower.Clusters(ctx)
	}
	return err
}

// awaitPublished returns the clusters that are published once there are any, or after a time.
func awaitPublished(ctx context.Context, m *mirror.Mirror) []string {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for {
		clusters := m.Clusters()
		if len(clusters) > 0 {
			return clusters
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limited.Done():
			return nil
		}
	}
}

// embedded publishes demo clusters on a NATS server in this process, and follows them from there.
func (f *fleetFlags) embedded(ctx context.Context, g *globals, l *fleetLink) error {
	dir, err := os.MkdirTemp("", "tidings-nats-")
	if err != nil {
		return err
	}
	l.closing = append(l.closing, func() error { return os.RemoveAll(dir) })
	broker, err := fleet.StartEmbedded(dir)
	if err != nil {
		return err
	}
	l.later(broker.Close)
	out, err := broker.Connect("publisher")
	if err != nil {
		return err
	}
	l.later(out.Close)
	in, err := broker.Connect("follower")
	if err != nil {
		return err
	}
	l.later(in.Close)
	clusters := map[string]*rest.Config{}
	for i := range f.clusters {
		simulated := demo.New(demo.Workload{Seed: uint64(i + 1)}, fakeapi.Options{})
		cfg, disconnect := fakeapi.InProcess(simulated.Cluster)
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			simulated.Run(running)
		}()
		l.later(func() {
			stop()
			<-ended
			disconnect()
		})
		clusters[fmt.Sprintf("demo-%d", i+1)] = cfg
	}
	log := g.log.With("part", "publisher")
	if err := l.publish(ctx, f, out, log); err != nil {
		return err
	}
	source, err := mirror.New(mirror.Options{Resources: []string{"namespaces", mirror.Everything}, Publisher: l.publisher, Logger: log})
	if err != nil {
		return err
	}
	l.closing = append(l.closing, func() error {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return source.Close(patience)
	})
	if err := source.Set(ctx, clusters); err != nil {
		return err
	}
	return l.follow(ctx, in, nil, g.log)
}
