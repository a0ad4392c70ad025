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

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

var getOutputs = []string{"table", "wide", "name", "json", "yaml"}

// getter prints the current objects.
type getter struct {
	g         *globals
	output    string
	noHeaders bool
	many      bool // there are several clusters: print their names
}

func newGet(g *globals) *cobra.Command {
	get := &getter{g: g}
	cmd := &cobra.Command{
		Use:   "get RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME ...",
		Short: "Print the current objects of resources",
		Long: `Get prints objects of one or more resources: all of them, those that match
selectors, or those with the given names.

It reads from the cluster, or with --server from a running "tidings serve", which
answers from memory without asking the cluster. --context then names clusters of
that server. Flags like --token-file and --certificate-authority are kubectl's, and
work for a cluster as for a server with authentication.

An object that does not exist is an error, with exit code 1. So is a cluster that
cannot be read; what others have is printed.`,
		Example: `  tidings get pods                           # in the context's namespace
  tidings get deploy,rs -A -o wide           # two resources, everywhere
  tidings get pod web-1 web-2 -o yaml        # by name
  tidings get pod/web-1 service/web          # the same, of several resources
  tidings get nodes --context a --context b  # of two clusters
  tidings get pods -A --server http://127.0.0.1:8888
  tidings get pods -A --server https://mirror:6443 --token-file token --certificate-authority ca.crt`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(getOutputs, get.output) {
				return unknownOutput(get.output, getOutputs...)
			}
			wanted, err := getArgs(args)
			if err != nil {
				return err
			}
			if g.selector != "" && slices.ContainsFunc(wanted, func(w arg) bool { return w.name != "" }) {
				return errors.New("give names or a selector, not both")
			}
			return get.run(cmd.Context(), wanted)
		},
	}
	g.scopeFlags(cmd)
	g.serverFlag(cmd)
	f := cmd.Flags()
	f.StringVarP(&get.output, "output", "o", "table", strings.Join(getOutputs, ", "))
	f.BoolVar(&get.noHeaders, "no-headers", false, "print tables without headers")
	complete(cmd, "output", cobra.FixedCompletions(getOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// getArgs parses the arguments of get, which are kubectl's: resources and then
// names, or resource/name each.
func getArgs(args []string) ([]arg, error) {
	if len(args) == 0 {
		return nil, errors.New(`say what to get, as in "tidings get pods"; "tidings api-resources" lists what there is`)
	}
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			if !strings.Contains(arg, "/") {
				return nil, fmt.Errorf("%q: after %s each argument must be resource/name too", arg, args[0])
			}
		}
		return parseArgs(args)
	}
	wanted, err := parseArgs(args[:1])
	if err != nil || len(args) == 1 {
		return wanted, err
	}
	var out []arg
	for _, w := range wanted {
		for _, name := range args[1:] {
			if err := validName(name); err != nil {
				return nil, err
			}
			if one := (arg{w.resource, name}); !slices.Contains(out, one) {
				out = append(out, one)
			}
		}
	}
	return out, nil
}

// result is the objects of one resource of one cluster.
type result struct {
	cluster    string
	resource   string // the same for all results of a resource
	kind       string // as printed before a name: "deployment.apps"
	namespace  string // empty for all
	namespaced bool
	table      tableRows                    // for tables
	objects    []*unstructured.Unstructured // for the other outputs
}

// kindName formats a kind as printed before a name: "deployment.apps".
func kindName(kind, group string) string {
	return strings.TrimSuffix(strings.ToLower(kind)+"."+group, ".")
}

// run fetches and prints wanted. It prints what it gets even if some requests fail,
// and returns the errors.
func (get *getter) run(ctx context.Context, wanted []arg) error {
	results, err := get.fetch(ctx, wanted)
	get.g.screen.showProgress("")
	if ctx.Err() != nil {
		return err
	}
	single := len(wanted) == 1 && wanted[0].name != "" && !get.g.allNamespaces
	return errors.Join(err, get.print(results, single, err != nil))
}

// checkClusters sets many, and rejects outputs that take only one cluster.
func (get *getter) checkClusters(clusters int) error {
	get.many = clusters > 1
	if get.many && (get.output == "json" || get.output == "yaml") {
		return fmt.Errorf("-o %s takes one --context: an object does not say which cluster it is of", get.output)
	}
	return nil
}

// fetch gets wanted from the clusters, or from the mirror of them.
func (get *getter) fetch(ctx context.Context, wanted []arg) ([]result, error) {
	clusters, done, err := get.g.clusters(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := get.checkClusters(len(clusters)); err != nil {
		return nil, err
	}
	var results []result
	var errs []error
	for _, c := range clusters {
		for _, w := range wanted {
			found, err := get.g.find(ctx, c, []arg{w})
			errs = append(errs, err)
			for _, o := range found {
				q := query{labels: get.g.selector, fields: get.g.fieldSelector}
				if o.name != "" && get.g.allNamespaces && o.resource.Namespaced {
					q.fields, o.name = o.fieldSelector(q.fields), ""
				}
				b, err := get.pages(ctx, o, q)
				if err == nil && w.name != "" && len(b.table.rows)+len(b.objects) == 0 {
					o.name = w.name
					err = o.notFound()
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				results = append(results, b)
			}
		}
	}
	return results, errors.Join(errs...)
}

// pages fetches all pages of a list, or the single object o.
func (get *getter) pages(ctx context.Context, o target, q query) (result, error) {
	accept := map[string]string{"table": asTable, "wide": asTable, "name": asMetadata}[get.output]
	if accept == "" {
		accept = asObjects
	}
	r := o.resource
	b := result{cluster: o.cluster.Name(), resource: r.Versioned(), kind: kindName(r.Kind, r.Group), namespace: o.namespace, namespaced: r.Namespaced}
	wide := get.output == "wide"
	var definitions []metav1.TableColumnDefinition
	var received int64
	for {
		body, err := fetch(ctx, o, q, accept)
		if err != nil {
			return b, err
		}
		a, err := decodeResponse(body, o.name == "")
		if err != nil {
			return b, fmt.Errorf("read the response for %s: %w", o, err)
		}
		if a.table != nil {
			if a.table.ColumnDefinitions != nil {
				definitions = a.table.ColumnDefinitions
			}
			p, err := tableOfServer(a.table, definitions, wide)
			if err != nil {
				return b, fmt.Errorf("read the response for %s: %w", o, err)
			}
			b.table = tableRows{p.columns, append(b.table.rows, p.rows...)}
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
	if accept == asTable && b.table.columns == nil {
		var err error
		if b.table, err = tableOfObjects(b.objects, wide); err != nil {
			return b, err
		}
	}
	return b, nil
}

// print writes results in the selected output. single means that one object was
// named; failed means that results are incomplete.
func (get *getter) print(results []result, single, failed bool) error {
	switch get.output {
	case "name":
		return get.g.screen.print(true, func(w io.Writer) { get.printNames(w, results) })
	case "json", "yaml":
		if single && (failed || len(results) == 0) {
			return nil
		}
		return get.g.screen.print(true, func(w io.Writer) { printObjects(w, results, single, get.output) })
	}
	tables, found := get.tables(results)
	if !found {
		if !failed {
			get.g.screen.notice("No resources found" + get.inNamespace(results) + ".")
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

// inNamespace names the namespace in which nothing was found, if there is one.
func (get *getter) inNamespace(results []result) string {
	for _, b := range results {
		if b.namespace != "" {
			return " in namespace " + b.namespace
		}
	}
	return ""
}

func (get *getter) printNames(w io.Writer, results []result) {
	for _, b := range results {
		for _, u := range b.objects {
			if get.many {
				fmt.Fprint(w, termsafe.Line(b.cluster), "\t")
			}
			fmt.Fprintln(w, termsafe.Line(b.kind+"/"+u.GetName()))
		}
	}
}

// tables joins the results of each resource in one table. found reports whether
// there are any rows.
func (get *getter) tables(results []result) (tables []*grid, found bool) {
	resources := make(map[string]bool)
	for _, b := range results {
		resources[b.resource] = true
	}
	heads := make(map[string]*grid)
	for _, b := range results {
		if len(b.table.rows) == 0 {
			continue
		}
		namespaces := b.namespaced && get.g.allNamespaces
		columns := slices.Clone(b.table.columns)
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
		for _, r := range b.table.rows {
			found = true
			cells := slices.Clone(r.cells)
			if len(resources) > 1 && len(cells) > 0 && b.table.columns[0] == "NAME" {
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
