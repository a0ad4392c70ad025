package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/internal/plain"
)

var getOutputs = []string{"table", "wide", "name", "json", "yaml"}

// getter prints objects as they are now.
type getter struct {
	g         *globals
	output    string
	noHeaders bool
	many      bool // there are several clusters: name them
}

func newGet(g *globals) *cobra.Command {
	get := &getter{g: g}
	cmd := &cobra.Command{
		Use:   "get RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME ...",
		Short: "Print resources as they are now",
		Long: `Get prints objects of one or more resources: all of them, those that match
selectors, or those that are named.

It asks the cluster itself, or with --server a running "tidings serve", which
answers from memory and leaves the cluster alone; --context then names clusters of
that server.`,
		Example: `  tidings get pods                           # in the context's namespace
  tidings get deploy,rs -A -o wide           # two resources, everywhere
  tidings get pod web-1 web-2 -o yaml        # by name
  tidings get pod/web-1 service/web          # the same, of several resources
  tidings get nodes --context a --context b  # of two clusters
  tidings get pods -A --server http://127.0.0.1:8888`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(getOutputs, get.output) {
				return unknownOutput(get.output, getOutputs...)
			}
			wanted, err := named(args)
			if err != nil {
				return err
			}
			if g.selector != "" && slices.ContainsFunc(wanted, func(w wish) bool { return w.name != "" }) {
				return errors.New("give names or a selector, not both")
			}
			return get.run(cmd.Context(), wanted)
		},
	}
	g.scopeFlags(cmd)
	g.serverFlag(cmd)
	f := cmd.Flags()
	f.StringVarP(&get.output, "output", "o", "table", strings.Join(getOutputs, ", "))
	f.BoolVar(&get.noHeaders, "no-headers", false, "print tables without their heads")
	complete(cmd, "output", cobra.FixedCompletions(getOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// named understands the arguments of get, which are kubectl's: resources and
// then names, or resource/name each.
func named(args []string) ([]wish, error) {
	if len(args) == 0 {
		return nil, errors.New(`say what to get, as in "tidings get pods"; "tidings api-resources" lists what there is`)
	}
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			if !strings.Contains(arg, "/") {
				return nil, fmt.Errorf("%q: behind %s each argument must be resource/name too", arg, args[0])
			}
		}
		return wishes(args)
	}
	wanted, err := wishes(args[:1])
	if err != nil || len(args) == 1 {
		return wanted, err
	}
	var out []wish
	for _, w := range wanted {
		for _, name := range args[1:] {
			if err := validName(name); err != nil {
				return nil, err
			}
			if one := (wish{w.resource, name}); !slices.Contains(out, one) {
				out = append(out, one)
			}
		}
	}
	return out, nil
}

// batch is what was fetched of one resource of one cluster.
type batch struct {
	cluster    string
	resource   string // the same for all batches of a resource
	kind       string // as it stands before a name: "deployment.apps"
	namespace  string // where it was looked for, if it was one
	namespaced bool
	page       page                         // for tables
	objects    []*unstructured.Unstructured // for the other outputs
}

// kindName is how a kind stands before a name: "deployment.apps".
func kindName(kind, group string) string {
	return strings.TrimSuffix(strings.ToLower(kind)+"."+group, ".")
}

// run fetches and prints what is wanted. What could not be had is in the error,
// the rest is printed.
func (get *getter) run(ctx context.Context, wanted []wish) error {
	batches, err := get.fetch(ctx, wanted)
	get.g.screen.showProgress("")
	if ctx.Err() != nil {
		return err
	}
	single := len(wanted) == 1 && wanted[0].name != "" && !get.g.allNamespaces
	return errors.Join(err, get.print(batches, single, err != nil))
}

// several notes whether there is more than one cluster to name.
func (get *getter) several(clusters int) error {
	get.many = clusters > 1
	if get.many && (get.output == "json" || get.output == "yaml") {
		return fmt.Errorf("-o %s takes one --context: an object does not say which cluster it is of", get.output)
	}
	return nil
}

// fetch asks the clusters, or the mirror of them.
func (get *getter) fetch(ctx context.Context, wanted []wish) ([]batch, error) {
	clusters, done, err := get.g.clusters(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := get.several(len(clusters)); err != nil {
		return nil, err
	}
	var batches []batch
	var errs []error
	for _, c := range clusters {
		for _, w := range wanted {
			found, err := get.g.find(ctx, c, []wish{w})
			errs = append(errs, err)
			for _, o := range found {
				q := query{labels: get.g.selector, fields: get.g.fieldSelector}
				if o.name != "" && get.g.allNamespaces && o.resource.Namespaced {
					q.fields, o.name = o.fieldSelector(q.fields), ""
				}
				b, err := get.pages(ctx, o, q)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				batches = append(batches, b)
			}
		}
	}
	return batches, errors.Join(errs...)
}

// pages fetches all pages of a list, or the one object that o names.
func (get *getter) pages(ctx context.Context, o objects, q query) (batch, error) {
	accept := map[string]string{"table": asTable, "wide": asTable, "name": asMetadata}[get.output]
	if accept == "" {
		accept = asObjects
	}
	r := o.resource
	b := batch{cluster: o.cluster.Name(), resource: r.Versioned(), kind: kindName(r.Kind, r.Group), namespace: o.namespace, namespaced: r.Namespaced}
	wide := get.output == "wide"
	var definitions []metav1.TableColumnDefinition
	var received int64
	for {
		body, err := fetch(ctx, o, q, accept)
		if err != nil {
			return b, err
		}
		a, err := decodeAnswer(body, o.name == "")
		if err != nil {
			return b, fmt.Errorf("read the answer for %s: %w", o, err)
		}
		if a.table != nil {
			if a.table.ColumnDefinitions != nil {
				definitions = a.table.ColumnDefinitions
			}
			p, err := tableOfServer(a.table, definitions, wide)
			if err != nil {
				return b, fmt.Errorf("read the answer for %s: %w", o, err)
			}
			b.page = page{p.columns, append(b.page.rows, p.rows...)}
			received += int64(len(p.rows))
		}
		b.objects = append(b.objects, a.objects...)
		received += int64(len(a.objects))
		if a.next == "" {
			break
		}
		expected := int64(-1)
		if a.remaining >= 0 {
			expected = received + a.remaining
		}
		get.g.screen.showProgress(progressLine(o.resource.String(), []count{{received, expected}}))
		q.next = a.next
	}
	if accept == asTable && b.page.columns == nil {
		var err error
		if b.page, err = tableOfObjects(b.objects, wide); err != nil {
			return b, err
		}
	}
	return b, nil
}

// print writes the batches in the output asked for. single says that one named
// object is wanted, and not a list; failed that not everything is there.
func (get *getter) print(batches []batch, single, failed bool) error {
	switch get.output {
	case "name":
		return get.g.screen.print(true, func(w io.Writer) { get.printNames(w, batches) })
	case "json", "yaml":
		if single && (failed || len(batches) == 0) {
			return nil
		}
		return get.g.screen.print(true, func(w io.Writer) { printObjects(w, batches, single, get.output) })
	}
	tables, found := get.tables(batches)
	if !found {
		if !failed {
			get.g.screen.say("No resources found" + get.where(batches) + ".")
		}
		return nil
	}
	return get.g.screen.print(true, func(w io.Writer) {
		for i, t := range tables {
			if i > 0 {
				fmt.Fprintln(w)
			}
			t.write(w)
		}
	})
}

// where says where nothing was found.
func (get *getter) where(batches []batch) string {
	for _, b := range batches {
		if b.namespace != "" {
			return " in namespace " + b.namespace
		}
	}
	return ""
}

func (get *getter) printNames(w io.Writer, batches []batch) {
	for _, b := range batches {
		for _, u := range b.objects {
			if get.many {
				fmt.Fprint(w, plain.Line(b.cluster), "\t")
			}
			fmt.Fprintln(w, plain.Line(b.kind+"/"+u.GetName()))
		}
	}
}

// tables joins batches of one resource to one table, and says whether there is
// anything in them.
func (get *getter) tables(batches []batch) (tables []*grid, found bool) {
	resources := make(map[string]bool)
	for _, b := range batches {
		resources[b.resource] = true
	}
	heads := make(map[string]*grid)
	for _, b := range batches {
		if len(b.page.rows) == 0 {
			continue
		}
		namespaces := b.namespaced && get.g.allNamespaces
		columns := slices.Clone(b.page.columns)
		if namespaces {
			columns = append([]string{"NAMESPACE"}, columns...)
		}
		if get.many {
			columns = append([]string{"CLUSTER"}, columns...)
		}
		key := b.resource + "\x00" + strings.Join(columns, "\x00")
		t := heads[key]
		if t == nil {
			t = &grid{columns: columns}
			if get.noHeaders {
				t.columns = nil
			}
			heads[key] = t
			tables = append(tables, t)
		}
		for _, r := range b.page.rows {
			found = true
			cells := slices.Clone(r.cells)
			if len(resources) > 1 && len(cells) > 0 && b.page.columns[0] == "NAME" {
				cells[0] = b.kind + "/" + cells[0]
			}
			if namespaces {
				cells = append([]string{r.namespace}, cells...)
			}
			if get.many {
				cells = append([]string{b.cluster}, cells...)
			}
			t.rows = append(t.rows, cells)
		}
	}
	return tables, found
}
