package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

var treeOutputs = []string{"tree", "json", "yaml"}

// How often a tree is read again with --watch: from a server, which answers from memory,
// and from a cluster.
const (
	treeEvery     = 2 * time.Second
	treeLiveEvery = 5 * time.Second
)

func newTree(g *globals) *cobra.Command {
	tr := &treer{g: g, told: &remarks{notice: g.screen.notice}}
	var at string
	cmd := &cobra.Command{
		Use:   "tree RESOURCE/NAME ... | RESOURCE NAME...",
		Short: "Print what belongs to an object, and what is wrong with it",
		Long: `Tree prints the owners of an object and what it owns, with the state and the age of
each object and what is wrong with it:

  Deployment/web                2/3             12d
  │ ! 2 of 3 are ready
  └─ ReplicaSet/web-7c6b9       2/3             2h
     ├─ Pod/web-7c6b9-b8n2k     1/1 Running     2h
     └─ Pod/web-7c6b9-x2x9p     0/1 Pending     5m
        ! not scheduled: Unschedulable: 0/3 nodes are available

--neighbours adds what these objects name or select, and what names or selects them:
services, ingresses, config maps, volumes, nodes, policies, bindings, events and so on.

What you may not see is counted. A tree has at most 250 objects and 5 levels below and
above the object; how many are left out is said. Which resources could not be looked at
is said on stderr.

It asks the cluster, or with --server a "tidings serve", which answers from memory and
looks at all that it mirrors. Without a server it looks at the resources that own or are
owned in most clusters, and at those of the object's own group. --at shows a moment in
the past, of a server that keeps a history, or of a folder that one has written.

--watch prints the tree again when it has changed.

--edges adds edges of your own to the neighbours, from a file such as this:

  edges:
  - from: certificates.cert-manager.io
    to: secrets
    name: is written to
    expression: self.spec.secretName      # CEL: a name, names, or a label selector`,
		Example: `  tidings tree deploy/web
  tidings tree pod web-7c6b9-x2x9p --neighbours
  tidings tree deploy/web -w --server http://127.0.0.1:8888
  tidings tree deploy/web --at -15m --server http://127.0.0.1:8888
  tidings tree deploy/web -o json | jq '.cause[-1].message'`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := watchArgs(args)
			if err != nil {
				return err
			}
			switch {
			case len(wanted) == 0 || slices.ContainsFunc(wanted, func(w arg) bool { return w.name == "" }):
				return errors.New(`say of which object, as in "tidings tree deploy/web"`)
			case !slices.Contains(treeOutputs, tr.output):
				return unknownOutput(tr.output, treeOutputs...)
			case tr.watch && (at != "" || g.folder.dir != ""):
				return errors.New("--watch follows the present, and the past does not change: leave out --at and --history")
			case at != "" && g.folder.dir == "" && g.conn.server == "":
				return errors.New("--at needs a history: name a server with --server, or a folder with --history")
			}
			if at != "" {
				m, err := parseAt("at", at, time.Now())
				if err != nil {
					return err
				}
				tr.at = &m
			}
			if tr.g.edgeFile != "" {
				tr.neighbours = true
			}
			if err := tr.g.readEdges(); err != nil {
				return err
			}
			return tr.run(cmd.Context(), wanted)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&g.namespace, "namespace", "n", "", "namespace to look in (default: the context's)")
	complete(cmd, "namespace", g.completeNamespaces)
	g.serverFlag(cmd)
	g.folderFlags(cmd)
	g.edgesFlag(cmd)
	f.StringVarP(&tr.output, "output", "o", "tree", strings.Join(treeOutputs, ", "))
	f.StringVar(&at, "at", "", "show the state at this `moment`: a time, -15m, or a resourceVersion; needs a history")
	f.BoolVar(&tr.neighbours, "neighbours", false, "add the objects that are related otherwise than by ownership")
	f.BoolVarP(&tr.watch, "watch", "w", false, "print the tree again when it has changed")
	complete(cmd, "output", cobra.FixedCompletions(treeOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// treer prints trees.
type treer struct {
	g          *globals
	told       *remarks
	output     string
	at         *read.Moment
	neighbours bool
	watch      bool
	live       bool   // the cluster is asked, and not a server
	last       string // what was printed, with --watch
}

func (tr *treer) run(ctx context.Context, wanted []arg) error {
	clusters, done, err := tr.g.clusters(ctx)
	if err != nil {
		return err
	}
	defer done()
	var namespaces []string // of the contexts, if there are any
	if tr.live = tr.g.conn.server == "" && tr.g.folder.dir == ""; tr.live {
		named := slices.Clone(clusters)
		served, end, err := servedLive(ctx, named, server.Options{Edges: tr.g.edges})
		if err != nil {
			return err
		}
		defer end()
		for i, c := range served {
			namespaces = append(namespaces, named[i].DefaultNamespace())
			clusters[i] = c
		}
	}
	for _, name := range checkEdges(ctx, tr.g.edges, clusters) {
		tr.told.tell(tr.g.edgeFile + ": no cluster has the resource " + name)
	}
	asked := tr.g.namespace
	if tr.at == nil && tr.g.folder.dir != "" {
		tr.at = &read.Moment{Time: tr.g.folder.newest}
	}
	for {
		var errs []error
		var text strings.Builder
		for i, c := range clusters {
			if namespaces != nil {
				tr.g.namespace = cmp.Or(asked, namespaces[i])
			}
			targets, err := tr.g.find(ctx, c, wanted)
			if err != nil {
				errs = append(errs, named(c, err, tr.g.several))
				continue
			}
			for j, o := range targets {
				if i+j > 0 && tr.output == "tree" {
					text.WriteString("\n")
				}
				if err := tr.one(ctx, &text, o); err != nil {
					errs = append(errs, err)
				}
			}
		}
		if err := tr.print(text.String()); err != nil {
			return err
		}
		if !tr.watch {
			return errors.Join(errs...)
		}
		for _, err := range errs {
			if permanent(err) {
				return errors.Join(errs...)
			}
			tr.g.screen.notice(brief(err))
		}
		every := treeEvery
		if tr.live {
			every = treeLiveEvery
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// print prints text, unless it is what was printed last.
func (tr *treer) print(text string) error {
	if text == tr.last {
		return nil
	}
	again := tr.last != ""
	tr.last = text
	return tr.g.screen.print(true, func(w io.Writer) {
		switch {
		case tr.watch && tr.output == "tree" && tr.g.streams.OutTerminal:
			fmt.Fprint(w, "\x1b[H\x1b[2J") // from the top of an empty screen
		case again && tr.output == "tree":
			fmt.Fprintln(w)
		case tr.output == "yaml" && again:
			fmt.Fprintln(w, "---")
		}
		fmt.Fprint(w, text)
	})
}

// treeAnswer is the answer of a server.
type treeAnswer struct {
	Data            json.RawMessage `json:"data"`
	ResourceVersion string          `json:"resourceVersion"`
	Moment          *past.Moment    `json:"moment"`
}

// one writes the tree of an object.
func (tr *treer) one(ctx context.Context, w io.Writer, o target) error {
	values := url.Values{"tree": {"true"}}
	if tr.neighbours {
		values.Set("neighbours", "true")
	}
	if tr.at != nil {
		values.Set("at", tr.at.String())
	} else if tr.live {
		values.Set("source", "live")
	}
	path := []string{o.resource.Resource, o.namespace, o.name}
	if !o.resource.Namespaced {
		path = []string{o.resource.Resource, o.name}
	}
	u := restURL(o.cluster.BaseURL(), o.resource.Group, o.resource.Version, path, values)
	resp, err := request(ctx, o.cluster.HTTPClient(), u, asObjects, func(resp *http.Response, body []byte) error {
		return refusal(resp, body, func() error {
			return &uselessError{fmt.Errorf("%s draws no trees", u.Host), `--server is for a "tidings serve"; leave it out to ask a cluster`}
		})
	})
	if err != nil {
		return doing(err, "read the tree of %s", o)
	}
	defer resp.Body.Close()
	var answer treeAnswer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", u.Redacted(), err)
	}
	now := time.Now()
	if answer.Moment != nil {
		tr.told.moment(o.title(tr.g), *tr.at, answer.Moment)
		now = answer.Moment.Time
	}
	switch tr.output {
	case "json":
		out := answer.Data
		if tr.watch {
			out = append(out, '\n')
		} else if out, err = json.MarshalIndent(answer.Data, "", "  "); err == nil {
			out = append(out, '\n')
		}
		_, _ = w.Write(termsafe.JSON(out))
		return err
	case "yaml":
		out, err := yaml.JSONToYAML(answer.Data)
		_, _ = io.WriteString(w, termsafe.Text(string(out)))
		return err
	}
	tree := new(relations.Tree)
	if err := json.Unmarshal(answer.Data, tree); err != nil || tree.Object == nil {
		return fmt.Errorf("read the answer of %s: it has no tree: %w", u.Redacted(), err)
	}
	if tr.g.several {
		fmt.Fprintln(w, termsafe.Line(o.cluster.Name()))
	}
	(&treeDrawing{screen: tr.g.screen, now: now}).draw(w, tree)
	for _, u := range tree.Unlooked {
		tr.told.tell("not looked at: " + u.Resource + ": " + u.Why)
	}
	return nil
}
