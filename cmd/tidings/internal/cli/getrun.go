package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
	kubectlget "k8s.io/kubectl/pkg/cmd/get"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// run prints what args name. It prints what it gets even if some requests fail, and
// returns the errors.
func (get *getter) run(ctx context.Context, args []string) error {
	clusters, done, err := get.g.clusters(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := get.checkClusters(len(clusters)); err != nil {
		return err
	}
	get.many = len(clusters) > 1
	get.out = get.output()
	reader := newClusterReader(ctx, get.g)
	get.past(reader)
	stopProgress := func() {}
	if !get.watching() {
		stopProgress = reader.showProgress(strings.Join(args, " "))
	}
	switch c := clusters[0]; {
	case get.raw != "":
		err = get.failed(ctx, c, get.printRaw(reader.of(c)))
	case get.watching():
		err = get.failed(ctx, c, get.follow(ctx, reader.of(c), args))
	case get.human():
		err = get.printTables(reader, clusters, args)
	case get.many:
		err = get.printNames(reader, clusters, args)
	default:
		err = get.failed(ctx, c, get.printObjects(reader.of(c), args, get.out))
	}
	stopProgress()
	flushed := get.out.flush()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, flushed)
}

// output returns the writer for the selected output. What people read is harmless to
// any terminal. The output of templates may be for programs, so it is changed only on
// a terminal.
func (get *getter) output() *textWriter {
	out := &textWriter{screen: get.g.screen}
	switch output := *get.flags.OutputFormat; {
	case output == "json":
		out.safe = termsafe.JSON // which means the same
	case get.g.streams.OutTerminal, get.human(), output == "name", strings.HasPrefix(output, "custom-columns"):
		out.safe = safeText
	}
	return out
}

// request returns the builder for what args name in a cluster.
func (get *getter) request(r *clusterGetter, args []string) *resource.Builder {
	g := get.g
	chunks := get.chunkSize
	if get.sortBy() != "" && !get.watching() {
		chunks = 0 // a table is sorted as a whole
	}
	return resource.NewBuilder(r).Unstructured().
		NamespaceParam(g.namespaceOf(r.cluster)).DefaultNamespace().AllNamespaces(g.allNamespaces).
		FilenameParam(g.namespace != "" && !g.allNamespaces, &get.files).
		LabelSelectorParam(g.selector).FieldSelectorParam(g.fieldSelector).
		Subresource(get.subresource).RequestChunksOf(chunks).
		ResourceTypeOrNameArgs(true, args...).
		Latest().
		TransformRequests(func(req *rest.Request) {
			if get.human() && get.serverPrint {
				req.SetHeader("Accept", asTable)
				if get.sortBy() != "" {
					req.Param("includeObject", "Object") // to sort by any field
				}
			}
		})
}

// infos requests what args name in a cluster. The objects that it could get come with
// the error.
func (get *getter) infos(r *clusterGetter, args []string, single *bool) ([]*resource.Info, error) {
	result := get.request(r, args).ContinueOnError().Flatten().Do()
	if get.ignoreNotFound {
		result.IgnoreErrors(apierrors.IsNotFound)
	}
	if err := result.Err(); err != nil {
		return nil, err
	}
	infos, err := result.IntoSingleItemImplied(single).Infos()
	if err != nil && get.human() {
		// kubectl prints one error of many without "error: ".
		err = utilerrors.NewAggregate([]error{err})
	}
	return infos, err
}

// printer returns the printer of the selected output. show, if not nil, says whether
// it prints objects; it remembers the columns of tables all the same.
func (get *getter) printer(mapping *meta.RESTMapping, show *bool, withNamespace, withKind bool) (printers.ResourcePrinter, error) {
	flags := get.flags.Copy()
	if mapping != nil {
		flags.SetKind(mapping.GroupVersionKind.GroupKind())
	}
	if withNamespace {
		_ = flags.EnsureWithNamespace()
	}
	if withKind {
		_ = flags.EnsureWithKind()
	}
	p, err := flags.ToPrinter()
	if err != nil {
		return nil, err
	}
	if field := get.sortBy(); field != "" {
		p = &kubectlget.SortingPrinter{Delegate: p, SortField: field}
	}
	if show != nil {
		p = showing(show, p)
	}
	if get.human() && get.serverPrint {
		p = &kubectlget.TablePrinter{Delegate: p}
	}
	return p, nil
}

// printObjects prints what args name in a cluster, in an output that is no table: one
// object by itself, others as a List.
func (get *getter) printObjects(r *clusterGetter, args []string, w io.Writer) error {
	single := false
	infos, err := get.infos(r, args, &single)
	if err != nil && single || len(infos) == 0 && get.ignoreNotFound {
		return err
	}
	p, printable := get.printer(nil, nil, false, false)
	if printable != nil {
		return printable
	}
	errs := []error{err}
	if single && len(infos) == 1 && !meta.IsListType(infos[0].Object) {
		errs = append(errs, p.PrintObj(infos[0].Object, w))
	} else {
		list, err := listOf(infos, single)
		if err == nil {
			err = p.PrintObj(list, w)
		}
		errs = append(errs, err)
	}
	return utilerrors.Reduce(utilerrors.Flatten(utilerrors.NewAggregate(errs)))
}

// listOf returns the v1 List of objects. The version of a list that the server made is
// kept if it is the only one.
func listOf(infos []*resource.Info, single bool) (runtime.Object, error) {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	version := ""
	for _, info := range infos {
		if single && len(infos) == 1 {
			if of, err := meta.ListAccessor(info.Object); err == nil {
				version = of.GetResourceVersion()
			}
		}
		objects := []runtime.Object{info.Object}
		if meta.IsListType(info.Object) {
			var err error
			if objects, err = meta.ExtractList(info.Object); err != nil {
				return nil, err
			}
		}
		for _, o := range objects {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				return nil, fmt.Errorf("the server's response is a %T, not an object", o)
			}
			list.Items = append(list.Items, *u)
		}
	}
	list.Object["metadata"] = map[string]any{"resourceVersion": version}
	return list, nil
}

// printNames prints the names of objects of several clusters, each with its cluster.
func (get *getter) printNames(reader *clusterReader, clusters []*cluster.Cluster, args []string) error {
	var errs []error
	for _, c := range clusters {
		var names strings.Builder
		errs = append(errs, get.failed(reader.ctx, c, get.printObjects(reader.of(c), args, &names)))
		for line := range strings.Lines(names.String()) {
			fmt.Fprintf(get.out, "%s\t%s", termsafe.Line(c.Name()), line)
		}
	}
	return errors.Join(errs...)
}

// printRaw prints the response for --raw.
func (get *getter) printRaw(r *clusterGetter) error {
	client, err := r.client()
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(r.cluster.BaseURL().Path, "/")
	body, err := client.Get().RequestURI(base + get.raw).Stream(r.ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(get.out, body)
	return err
}
