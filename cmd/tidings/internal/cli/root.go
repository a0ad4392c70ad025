package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
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
	conn          connection
	folder        folder
	ofThePast     bool   // the command reads the past
	level, format string // of the log
	logErrors     bool   // the command's error is a log record, too
	namespace     string
	allNamespaces bool
	selector      string
	fieldSelector string
	edgeFile      string
	edges         *relations.Edges // of the file

	flagRules []func(*cobra.Command) error // see exclusive and needs
	several   bool                         // several clusters are in use
}

func newRoot(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:   "tidings",
		Short: "Follow, query and mirror the resources of Kubernetes clusters",
		Long: `Tidings keeps a live, local, indexed mirror of Kubernetes resources and delivers
their changes.

  tidings watch   prints each change of any resource, across disconnects
  tidings get     prints resources, from a cluster or from a running mirror
  tidings history prints the changes of the past, and who made them
  tidings diff    prints what differs between two moments
  tidings serve   mirrors clusters and answers any number of readers over HTTP
  tidings mcp     offers the clusters to an agent, as tools that read
  tidings fleet   lists what mirrors publish on NATS for other mirrors

The cluster is the current context of your kubeconfig, found where kubectl finds
it. If you have no cluster at hand, add --demo for an embedded, simulated one.`,
		Example: `  tidings serve --demo                      # try it: needs nothing else
  tidings watch pods                        # what happens to the pods here
  tidings watch deploy,rs,pods -A -o diff   # a rollout, field by field
  tidings get pods -n kube-system -o wide`,
		Version:           thisBuild().String(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return g.prepare(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&g.kubeconfig, "kubeconfig", "", "kubeconfig `file` to use (default: $KUBECONFIG, else ~/.kube/config, else the pod's service account)")
	f.StringArrayVar(&g.contexts, "context", nil, "kubeconfig `context` to use; repeat it, or use * as in 'prod-*', for several clusters (default: the current one)")
	f.BoolVar(&g.demo, "demo", false, "use the embedded demo cluster instead of a kubeconfig")
	f.StringVarP(&g.level, "log-level", "v", "", "log to stderr from this level on: debug, info, warn or error")
	f.StringVar(&g.format, "log-format", formatText, "`format` of the log: text or json, one record a line")
	g.exclusive(root, "the demo cluster needs no kubeconfig", "demo", "kubeconfig")
	g.exclusive(root, "the demo is one cluster", "demo", "context")
	root.AddCommand(newWatch(g), newGet(g), newHistory(g), newDiff(g), newTree(g), newServe(g), newMCP(g), newFleet(g), newAPIResources(g), newVersion(g))
	root.SetVersionTemplate("{{.Version}}")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetHelpCommand(&cobra.Command{Hidden: true}) // --help is enough
	complete(root, "context", g.completeContexts)
	complete(root, "log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	complete(root, "log-format", cobra.FixedCompletions([]string{formatText, formatJSON}, cobra.ShellCompDirectiveNoFileComp))
	return root
}

// The values of --log-format.
const (
	formatText = "text"
	formatJSON = "json"
)

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
func (g *globals) prepare(cmd *cobra.Command) error {
	if g.format != formatText && g.format != formatJSON {
		return fmt.Errorf("--log-format %s: choose text or json", g.format)
	}
	for _, rule := range g.flagRules {
		if err := rule(cmd); err != nil {
			return err
		}
	}
	if err := g.conn.check(); err != nil {
		return err
	}
	g.logTo(slog.DiscardHandler)
	if g.level != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(g.level)); err != nil {
			return fmt.Errorf("--log-level %s: choose debug, info, warn or error", g.level)
		}
		g.logFrom(level)
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
	options := &slog.HandlerOptions{Level: level}
	if g.format == formatJSON {
		options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration { // as in text, not in nanoseconds
				a.Value = slog.StringValue(a.Value.Duration().String())
			}
			return a
		}
		g.logTo(slog.NewJSONHandler(g.screen.logWriter(), options))
		return
	}
	g.logTo(slog.NewTextHandler(g.screen.logWriter(), options))
}

func (g *globals) logTo(handler slog.Handler) {
	g.log = slog.New(handler)
	if g.setLogger != nil {
		g.setLogger(g.log)
	}
}

// clusters opens the clusters that --kubeconfig, --context, --server and --demo
// select. close closes them.
func (g *globals) clusters(ctx context.Context) (clusters []*cluster.Cluster, close func(), err error) {
	if g.folder.dir != "" {
		return g.offline(ctx)
	}
	if !g.demo || g.conn.server != "" {
		if g.conn.server != "" {
			clusters, err = g.mirrors(ctx)
		} else {
			clusters, err = g.kubeconfigClusters()
		}
		if err != nil {
			return nil, nil, err
		}
		g.several = len(clusters) > 1
		return clusters, func() {
			for _, c := range clusters {
				c.Close()
			}
		}, nil
	}
	if flag := cmp.Or(g.conn.tokenFlag(), g.conn.tlsFlag(), g.conn.asFlag()); flag != "" {
		return nil, nil, fmt.Errorf("%s: the demo cluster is in this process and has no users", flag)
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
