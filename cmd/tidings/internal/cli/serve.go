package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// closeTimeout limits the time to close the mirror at the end.
const closeTimeout = 10 * time.Second

func newServe(g *globals) *cobra.Command {
	var (
		resources []string
		retain    int
		idle      time.Duration
		backlog   int
		pages     time.Duration
		memory    string
		pass      bool
		sv        serving
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Mirror clusters and answer any number of readers over HTTP",
		Long: `Serve keeps a live mirror of resources and answers reads and watches of it
over HTTP. Dashboards, scripts and bots ask it, and the API server is left alone.

It mirrors the resources that --resource names from the start; without --resource,
each resource from its first request on. Secrets are mirrored only if named. A
--resource that no cluster serves is an error.

  GET /deploy?labels[k8s-app]=kube-dns          any resource, by any of its names
  GET /apps/v1/deployments/kube-system/coredns  by group, version and resource
  GET /core/v1/pods?limit=100                   in pages of one state
  GET /pods?watch=true                          server-sent events
  GET /clusters/NAME/...                        of one of several clusters
  GET /pods?window=true&sort=Age                rows of a sorted table, live
  POST /mcp                                     tools for agents, see "tidings mcp"
  GET /healthz /readyz /metrics                 and GET / lists it all

In a browser, / is a page with live tables of any resource.

It also answers reads of the Kubernetes API. For kubectl and other clients, set the
server in their kubeconfig to http://127.0.0.1:8888 or, for one of several clusters,
http://127.0.0.1:8888/clusters/NAME. Writes, logs, exec and the like are refused or,
with --passthrough, forwarded to the cluster with the caller's own bearer token, never
with your credentials.

With several contexts it mirrors several clusters; the first context answers requests
that name none. When the kubeconfig changes, clusters are added, removed and replaced.

Everybody who can connect can read everything that you can, so it listens on the
loopback interface only. With --authentication upstream it may listen anywhere, with
TLS: callers authenticate as at the API server, with a token or a client certificate,
and may read what they may read there, according to the API server. The mirror itself
then needs the rights to list and watch what it mirrors, and those of the ClusterRole
system:auth-delegator. GET /pods?visible=true shows a caller the namespaces that they
may read.`,
		Example: `  tidings serve --demo                                  # needs no cluster
  tidings serve                                         # the current context
  tidings serve --resource pods --resource deploy       # these, from the start
  tidings serve --context '*' --listen 127.0.0.1:9999   # all clusters there are
  tidings serve --authentication upstream --listen :6443 \
    --tls-cert-dir tls --external-url https://mirror.example.com:6443 \
    --write-kubeconfig mirror.yaml --audit-log audit.log
  curl '127.0.0.1:8888/pods?namespace=kube-system&limit=5'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("serve takes no arguments, and %q is one; name resources with --resource, as in --resource pods", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if g.logErrors = true; g.level == "" {
				g.logFrom(slog.LevelInfo)
			}
			if pass && g.demo {
				return errors.New("--passthrough forwards requests to a cluster, and --demo has none that can be reached: use one or the other")
			}
			if idle < 0 {
				return fmt.Errorf("--drop-unread-after %v: give a duration such as 30m", idle)
			}
			if retain < 0 {
				return fmt.Errorf("--retain %d: give a number of changes", retain)
			}
			if backlog < 0 {
				return fmt.Errorf("--backlog %d: give a number of events", backlog)
			}
			limit, err := limitMemory(memory)
			if err != nil {
				return err
			}
			if pages < 0 {
				return fmt.Errorf("--page-ttl %s: give a duration such as 5m", pages)
			}
			if err := sv.admit.check(g); err != nil {
				return err
			}
			if err := sv.audit.check(); err != nil {
				return err
			}
			if err := sv.past.check(); err != nil {
				return err
			}
			if err := sv.fleet.check(g, sv.admit.users); err != nil {
				return err
			}
			if err := g.readEdges(); err != nil {
				return err
			}
			return g.serve(cmd.Context(), &sv,
				mirror.Options{Resources: resources, Default: defaultCluster(g.contexts), Retain: retain, IdleTimeout: idle, Backlog: backlog, Logger: g.log},
				server.Options{Reads: read.Options{PageTTL: pages}, Passthrough: pass, MemoryLimit: limit, Edges: g.edges, Version: thisBuild().Version, Revision: thisBuild().Commit, Logger: g.log})
		},
	}
	f := cmd.Flags()
	f.StringVar(&sv.address, "listen", server.DefaultAddr, "`address` to listen on")
	f.StringArrayVarP(&resources, "resource", "r", nil, "`resource` to mirror from the start, by any name; repeat it for several, and with '*' for the others on demand")
	f.DurationVar(&idle, "drop-unread-after", time.Hour, "stop mirroring a resource that was not read or watched for this `time`, until the next request; does not apply to --resource; 0: never")
	f.IntVar(&retain, "retain", 0, "changes of each resource to keep for watches that resume (default 2000)")
	f.IntVar(&backlog, "backlog", 0, "events that may wait for a slow watch; beyond that they are folded to the newest of each object or, in the Kubernetes API, the watch ends; at least --retain (default 5000)")
	f.DurationVar(&pages, "page-ttl", 0, "how long the state behind a continue token is held after its last use (default 5m)")
	f.StringVar(&memory, "memory-limit", "", "`memory` it may use, such as 512Mi; new watches are refused when little is left (default: GOMEMLIMIT, or nine tenths of the control group's limit)")
	f.BoolVar(&pass, "passthrough", false, "forward everything but reads of mirrored resources (writes, logs, exec, …) to the cluster, with the caller's own bearer token")
	f.StringVar(&sv.pprof, "pprof", "", "loopback `address`, such as 127.0.0.1:6060, to serve profiles of the program on, at /debug/pprof/ (default: nowhere)")
	g.edgesFlag(cmd)
	sv.admit.flags(g, cmd)
	sv.audit.flags(g, cmd)
	sv.past.flags(cmd)
	sv.fleet.flags(g, cmd)
	complete(cmd, "resource", g.completeResources)
	return cmd
}

// defaultCluster is the first context named, if there are several.
func defaultCluster(contexts []string) string {
	if len(contexts) > 1 && !strings.Contains(contexts[0], "*") {
		return contexts[0]
	}
	return ""
}

// serving is what the flags of serve say beside the options of its parts.
type serving struct {
	address, pprof string
	admit          admission
	audit          auditing
	past           historyFlags
	fleet          fleetFlags
}

// checkTimeout limits the time to look up the resources of --resource at the start.
const checkTimeout = 5 * time.Second

// serve mirrors and answers until ctx ends. It fails if it cannot start, for instance
// because the address is in use or the kubeconfig cannot be read.
func (g *globals) serve(ctx context.Context, sv *serving, mo mirror.Options, so server.Options) (err error) {
	begun := time.Now()
	g.logStart(&sv.admit, so.Passthrough)
	group, ctx := errgroup.WithContext(ctx)
	link, err := sv.fleet.open(ctx, g)
	defer func() { err = errors.Join(err, link.close()) }()
	if err != nil {
		return err
	}
	so.Publisher, so.Follower = link.publisher, link.follower
	sets := link.sets
	if sets == nil {
		var done func()
		if sets, done, err = g.sets(ctx); err != nil {
			return err
		}
		defer done()
		if link.publisher != nil {
			mo.Publisher = link.publisher
		}
	}
	recording, closeHistory, err := sv.past.open(g.demo, g.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeHistory()) }()
	if recording != nil {
		mo.Journal, so.Reads.History = recording, recording
		if g.demo && len(mo.Resources) == 0 {
			mo.Resources = slices.Concat(demoRecorded, []string{mirror.Everything})
		}
	}
	m, err := mirror.New(mo)
	if err != nil {
		return err
	}
	defer func() {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err = errors.Join(err, m.Close(patience)); err == nil {
			g.log.Info("stopped", "uptime", time.Since(begun).Round(time.Millisecond))
		}
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", sv.address)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", sv.address, err)
	}
	defer listener.Close() // if Serve does not
	if so, err = sv.admit.options(g, listener.Addr(), so); err != nil {
		return err
	}
	if so.Gate != nil {
		defer so.Gate.Close()
	}
	log, closeLog, err := sv.audit.open(g)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }() // the server has ended
	so.Audit = log
	s, err := server.New(m, so)
	if err != nil {
		return err
	}
	if sv.pprof != "" {
		profiles, err := server.NewProfiles(ctx, sv.pprof, g.log)
		if err != nil {
			s.Close()
			return fmt.Errorf("--pprof %s: %w", sv.pprof, err)
		}
		group.Go(func() error { return profiles.Serve(ctx) })
	}
	group.Go(func() error { return s.Serve(ctx, listener) })
	followed := make(chan struct{})
	group.Go(func() error { return m.Follow(ctx, afterFirst(sets, func() { close(followed) })) })
	group.Go(func() error {
		select {
		case <-followed:
		case <-ctx.Done():
			return nil
		}
		if err := g.checkResources(ctx, m); err != nil || ctx.Err() != nil {
			return err
		}
		var mirrored []*mirror.Cluster
		for _, name := range m.Clusters() {
			if c, err := m.Cluster(name); err == nil {
				mirrored = append(mirrored, c)
			}
		}
		for _, name := range checkEdges(ctx, g.edges, mirrored) {
			g.log.Warn("no cluster has a resource of --edges", "file", g.edgeFile, "resource", name)
		}
		var published []string
		if link.follower != nil && sv.admit.kubeconfig != "" {
			published = awaitPublished(ctx, m)
		}
		return sv.admit.announce(g, listener.Addr(), so.TLS, published)
	})
	group.Go(func() error { g.showMirroring(ctx, m); return nil })
	return group.Wait()
}

// checkResources returns an error if no cluster serves a resource of --resource. It
// waits only for a time: a cluster that does not answer may come back.
func (g *globals) checkResources(ctx context.Context, m *mirror.Mirror) error {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	unasked, err := m.CheckResources(limited)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--resource %w", err)
	}
	for name, clusters := range unasked {
		g.log.Warn("cannot check a requested resource: a cluster cannot be asked for it yet; it is mirrored when it is found", "resource", name, "clusters", clusters)
	}
	return nil
}

// afterFirst calls then after the first step of a sequence has been handled.
func afterFirst[K, V any](sequence iter.Seq2[K, V], then func()) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		first := true
		for k, v := range sequence {
			if !yield(k, v) {
				return
			}
			if first {
				first = false
				then()
			}
		}
	}
}

// sets are the clusters to mirror: those of the kubeconfig, for as long as it
// changes, or the demo.
func (g *globals) sets(ctx context.Context) (iter.Seq2[map[string]*rest.Config, error], func(), error) {
	if !g.demo {
		// What is wrong from the start is to be said before anything begins.
		if _, err := cluster.FromKubeconfigs(g.kubeconfig, g.contexts); err != nil {
			return nil, nil, err
		}
		return cluster.Watch(ctx, g.kubeconfig, g.contexts), func() {}, nil
	}
	clusters, done, err := g.clusters(ctx)
	if err != nil {
		return nil, nil, err
	}
	return func(yield func(map[string]*rest.Config, error) bool) {
		yield(map[string]*rest.Config{clusters[0].Name(): clusters[0].Config()}, nil)
	}, done, nil
}

// showMirroring keeps a line on a terminal while first lists are under way.
func (g *globals) showMirroring(ctx context.Context, m *mirror.Mirror) {
	if !g.streams.ErrTerminal {
		return
	}
	defer g.screen.showProgress("")
	tick := time.NewTicker(progressAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var counts []count
		what := ""
		for _, c := range m.Status().Clusters {
			for _, r := range c.Resources {
				if !r.Synced && r.Received > 0 {
					counts = append(counts, count{r.Received, r.Expected})
					what = "mirroring " + r.Name + " of " + c.Name
				}
			}
		}
		switch {
		case len(counts) == 0:
			g.screen.showProgress("")
			continue
		case len(counts) > 1:
			what = fmt.Sprintf("mirroring %d resources", len(counts))
		}
		g.screen.showProgress(progressLine(what, counts))
	}
}
