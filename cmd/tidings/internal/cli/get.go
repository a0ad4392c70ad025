package cli

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/resource"
	kubectlget "k8s.io/kubectl/pkg/cmd/get"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// getter prints the current objects as kubectl does: it finds them with the
// builder of cli-runtime and prints them with the printers of kubectl.
type getter struct {
	g     *globals
	flags *kubectlget.PrintFlags
	files resource.FilenameOptions
	out   *textWriter
	many  bool // there are several clusters: print their names

	chunkSize      int64
	subresource    string
	raw            string // a path to print the response of, instead of objects
	ignoreNotFound bool
	serverPrint    bool // let the server make the tables
	watch          bool
	watchOnly      bool // leave out the objects there are
	watchEvents    bool // print events instead of objects

	at     string       // a moment in the past
	moment *read.Moment // that moment; nil: the present
	clock  time.Time    // of the moment, once it is known
}

func newGet(g *globals) *cobra.Command {
	get := &getter{g: g, flags: kubectlget.NewGetPrintFlags()}
	cmd := &cobra.Command{
		Use:   "get RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME ... | -f FILE",
		Short: "Print the current objects of resources",
		Long: `Get prints objects of one or more resources: all of them, those that match
selectors, those with the given names, or those in files.

It takes the flags of "kubectl get" and prints the same.

It reads from the cluster, or with --server from a running "tidings serve", which
answers from memory without asking the cluster. --context then names clusters of
that server. Flags like --token-file and --certificate-authority are kubectl's, and
work for a cluster as for a server with authentication. From several clusters, it
prints tables with a column for the cluster. Of the other outputs only -o name takes
several clusters.

An object that does not exist is an error, with exit code 1. So is a cluster that
cannot be read; what others have is printed.

--at shows a moment in the past, in any output: of a server that keeps a history, or
without any server of a folder that one has written (--history; the newest moment, if
--at names no other). Ages are those of the moment. Which moment is shown, and what is
not known of it, is said on stderr.

--watch ends when the connection does, as in kubectl. "tidings watch" goes on, and
follows several resources and clusters.`,
		Example: `  tidings get pods                           # in the context's namespace
  tidings get deploy,rs -A -o wide           # two resources, everywhere
  tidings get pod web-1 web-2 -o yaml        # by name
  tidings get pod/web-1 service/web          # the same, of several resources
  tidings get nodes --context a --context b  # of two clusters
  tidings get pods -L app --sort-by .status.startTime
  tidings get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName
  tidings get pods -o jsonpath='{.items[*].status.podIP}'
  tidings get -f manifests/ -R               # what the files name
  tidings get pods -w --output-watch-events  # and what becomes of them
  tidings get pods --at -15m --server http://127.0.0.1:8888
  tidings get deploy web -o yaml --at 2026-11-22T10:00:00Z --history copied/
  tidings get --raw /readyz?verbose
  tidings get pods -A --server http://127.0.0.1:8888
  tidings get pods -A --server https://mirror:6443 --token-file token --certificate-authority ca.crt`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := get.check(args); err != nil {
				return err
			}
			if err := get.checkPast(time.Now()); err != nil {
				return err
			}
			return get.run(cmd.Context(), args)
		},
	}
	g.scopeFlags(cmd)
	g.serverFlag(cmd)
	g.folderFlags(cmd)
	get.flags.AddFlags(cmd)
	cmdutil.AddFilenameOptionFlags(cmd, &get.files, "that name the objects to get")
	cmdutil.AddSubresourceFlags(cmd, &get.subresource, "get this subresource of the objects, such as status or scale")
	f := cmd.Flags()
	for name, usage := range map[string]string{
		"output":                      "wide, name, json, yaml, kyaml, or jsonpath, go-template, custom-columns=… (or …-file=)",
		"allow-missing-template-keys": "print nothing for fields that templates name and objects lack",
		"filename":                    "get the objects that these `files`, folders or URLs name, - for stdin",
		"kustomize":                   "get the objects of this kustomization `folder`",
		"recursive":                   "read the folders of --filename recursively",
		"template":                    "template or `file` for -o go-template and go-template-file",
		"label-columns":               "show the values of these `labels` as columns",
		"show-labels":                 "show all labels in the last column",
		"show-kind":                   "show the kind before each name",
		"show-managed-fields":         "keep metadata.managedFields in json and yaml",
		"sort-by":                     "sort by the field at this `JSONPath`, as in .metadata.name",
		"no-headers":                  "print tables and custom columns without headers",
	} {
		f.Lookup(name).Usage = usage
	}
	f.Int64Var(&get.chunkSize, "chunk-size", cmdutil.DefaultChunkSize, "objects to request at a time, 0 for all at once")
	f.StringVar(&get.at, "at", "", "show the state at this `moment`: a time, -15m, or a resourceVersion; needs a history")
	f.StringVar(&get.raw, "raw", "", "print the response of the server for this `path`, as in /readyz?verbose")
	f.BoolVarP(&get.watch, "watch", "w", false, "print the objects, then each one that changes")
	f.BoolVar(&get.watchOnly, "watch-only", false, "print each object that changes, without those there are")
	f.BoolVar(&get.watchEvents, "output-watch-events", false, "with --watch or --watch-only: print ADDED, MODIFIED or DELETED with each object")
	f.BoolVar(&get.ignoreNotFound, "ignore-not-found", false, "do not fail if an object given by name does not exist")
	f.BoolVar(&get.serverPrint, "server-print", true, "let the server make the tables")
	return cmd
}

// check checks the flags that do not go together, in kubectl's words.
func (get *getter) check(args []string) error {
	output, human := *get.flags.OutputFormat, get.flags.HumanReadableFlags
	switch {
	case get.raw != "" && len(args) > 0:
		return errors.New("arguments may not be passed when --raw is specified")
	case get.raw != "" && (get.watching() || get.g.selector != ""):
		return errors.New("--raw may not be specified with other flags that filter the server request or alter the output")
	case get.raw != "" && output != "":
		return errors.New("--raw and --output are mutually exclusive")
	case get.raw != "":
		if _, err := url.ParseRequestURI(get.raw); err != nil {
			return &toldError{"error: --raw must be a valid URL path: " + err.Error(), err}
		}
	case len(args) == 0 && cmdutil.IsFilenameSliceEmpty(get.files.Filenames, get.files.Kustomize):
		return errors.New(`say what to get, as in "tidings get pods"; "tidings api-resources" lists what there is`)
	case *human.ShowLabels && output != "" && output != "wide":
		return fmt.Errorf("--show-labels option cannot be used with %s printer", output)
	case len(*human.ColumnLabels) > 0 && strings.HasPrefix(output, "custom-columns"):
		return fmt.Errorf("--label-columns option cannot be used with %s printer", output)
	case get.watchEvents && !get.watching():
		return errors.New("--output-watch-events option can only be used with --watch or --watch-only")
	}
	return nil
}

func (get *getter) watching() bool { return get.watch || get.watchOnly }

func (get *getter) sortBy() string { return *get.flags.HumanReadableFlags.SortBy }

// human reports whether the output is a table with the columns of the resource.
func (get *getter) human() bool {
	output := *get.flags.OutputFormat
	return output == "wide" || output == "" && *get.flags.TemplateFlags.TemplateArgument == ""
}

// checkClusters rejects what cannot be printed of several clusters.
func (get *getter) checkClusters(clusters int) error {
	if clusters == 1 {
		return nil
	}
	what := ""
	switch output := *get.flags.OutputFormat; {
	case get.raw != "":
		what = "--raw"
	case get.watching():
		return errors.New(`--watch takes one --context; "tidings watch" follows several clusters`)
	case !get.human() && output != "name":
		what = "-o " + output
	case len(get.files.Filenames) > 0 && get.files.Filenames[0] == "-":
		what = "-f -"
	default:
		return nil
	}
	return fmt.Errorf("%s takes one --context; tables and -o name can be of several clusters", what)
}
