package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// globals holds the flags that several commands share.
type globals struct {
	streams   IO
	screen    *screen
	setLogger func(*slog.Logger)
	log       *slog.Logger // silent unless --log-level or the command sets a level

	kubeconfig    string
	contexts      []string
	demo          bool
	server        string // a mirror to read from, "" for the clusters themselves
	level         string
	namespace     string
	allNamespaces bool
	selector      string
	fieldSelector string
}

func newRoot(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:   "tidings",
		Short: "Follow, query and mirror the resources of Kubernetes clusters",
		Long: `Tidings keeps a live, local, indexed mirror of Kubernetes resources and delivers
their changes.

  tidings watch   prints each change of any resource, across disconnects
  tidings get     prints resources, from a cluster or from a running mirror
  tidings serve   mirrors clusters and answers any number of readers over HTTP

The cluster is the current context of your kubeconfig, found where kubectl finds
it. If you have no cluster at hand, add --demo for an embedded, simulated one.`,
		Example: `  tidings serve --demo                      # try it: needs nothing else
  tidings watch pods                        # what happens to the pods here
  tidings watch deploy,rs,pods -A -o diff   # a rollout, field by field
  tidings get pods -n kube-system -o wide`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return g.prepare() },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&g.kubeconfig, "kubeconfig", "", "kubeconfig `file` to use (default: $KUBECONFIG, else ~/.kube/config, else the pod's service account)")
	f.StringArrayVar(&g.contexts, "context", nil, "kubeconfig `context` to use; repeat it, or use * as in 'prod-*', for several clusters (default: the current one)")
	f.BoolVar(&g.demo, "demo", false, "use the embedded demo cluster instead of a kubeconfig")
	f.StringVarP(&g.level, "log-level", "v", "", "log to stderr from this level on: debug, info, warn or error")
	root.MarkFlagsMutuallyExclusive("demo", "kubeconfig")
	root.MarkFlagsMutuallyExclusive("demo", "context")
	root.AddCommand(newWatch(g), newGet(g), newServe(g), newAPIResources(g), newVersion(g))
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetHelpCommand(&cobra.Command{Hidden: true}) // --help is enough
	complete(root, "context", g.completeContexts)
	complete(root, "log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	return root
}

// scopeFlags adds the flags that select objects of a resource.
func (g *globals) scopeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&g.namespace, "namespace", "n", "", "namespace to look in (default: the context's)")
	f.BoolVarP(&g.allNamespaces, "all-namespaces", "A", false, "look in all namespaces, whatever --namespace says")
	f.StringVarP(&g.selector, "selector", "l", "", "label `selector`, as in 'app=web,tier!=cache'")
	f.StringVar(&g.fieldSelector, "field-selector", "", "field `selector`, as in 'spec.nodeName=worker-1'; the server decides which fields it knows")
	complete(cmd, "namespace", g.completeNamespaces)
}

// prepare checks the flags and makes the logger.
func (g *globals) prepare() error {
	g.log = slog.New(slog.DiscardHandler)
	if g.level != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(g.level)); err != nil {
			return fmt.Errorf("--log-level %s: choose debug, info, warn or error", g.level)
		}
		g.logFrom(level)
	}
	if g.setLogger != nil {
		g.setLogger(g.log)
	}
	if _, err := labels.Parse(g.selector); err != nil {
		return fmt.Errorf("--selector %s: %w", g.selector, err)
	}
	if _, err := fields.ParseSelector(g.fieldSelector); err != nil {
		return fmt.Errorf("--field-selector %s: %w", g.fieldSelector, err)
	}
	return nil
}

// logFrom logs records of at least that level.
func (g *globals) logFrom(level slog.Level) {
	g.log = slog.New(slog.NewTextHandler(g.screen.logWriter(), &slog.HandlerOptions{Level: level}))
}

// clusters opens the clusters that --kubeconfig, --context, --server and --demo
// select. close closes them.
func (g *globals) clusters(ctx context.Context) (clusters []*cluster.Cluster, close func(), err error) {
	if !g.demo || g.server != "" {
		if g.server != "" {
			clusters, err = g.mirrors(ctx)
		} else {
			clusters, err = cluster.FromKubeconfigs(g.kubeconfig, g.contexts)
		}
		if err != nil {
			return nil, nil, err
		}
		return clusters, func() {
			for _, c := range clusters {
				c.Close()
			}
		}, nil
	}
	simulated := demo.New(demo.Workload{}, fakeapi.Options{})
	cfg, disconnect := fakeapi.InProcess(simulated.Cluster)
	c, err := cluster.New("demo", cfg)
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer func() { ended <- struct{}{} }()
		simulated.Run(ctx)
	}()
	return []*cluster.Cluster{c}, func() {
		stop(errors.New("the command is done"))
		<-ended
		c.Close()
		disconnect()
	}, nil
}

// namespaceOf returns the namespace to use for namespaced resources, "" for all.
func (g *globals) namespaceOf(c *cluster.Cluster) string {
	switch {
	case g.allNamespaces:
		return ""
	case g.namespace != "":
		return g.namespace
	}
	return c.DefaultNamespace()
}
