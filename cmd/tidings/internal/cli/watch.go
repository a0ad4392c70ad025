package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

var watchOutputs = []string{"line", "wide", "diff", "json", "yaml"}

func newWatch(g *globals) *cobra.Command {
	f := &watcher{g: g}
	line := &eventLine{screen: g.screen}
	printing := newWatchPrinters()
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "watch RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME ...",
		Short: "Print each change of any resource, across disconnects",
		Long: `Watch prints the objects of one or more resources, and then each change as it
happens:

  -         ADDED     Pod  default/web-1  81234
  15:04:05  MODIFIED  Pod  default/web-1  81240

The columns are the local time at which the change arrived (- for the objects that
were there before), the change, the kind, the namespace and name, and the
resourceVersion. With several contexts the cluster comes after the time. On a
terminal long names are shortened in the middle. -L and --show-labels add labels.

-o wide adds the age, the state, the owner and the labels, and shortens nothing;
-o diff prints the changed fields below the line; -o json prints
{"type": …, "time": …, "object": …} on one line; -o yaml prints documents.
-o name, jsonpath=…, go-template=…, custom-columns=… and their files print each
object as "tidings get" does, or with --output-watch-events the event:
{"type": …, "object": …}.

A resource is named as for kubectl, by plural, short name or kind, alone or with
group and version: pods, deploy, Deployment, deployments.apps,
deployments.v1.apps. A category like "all" means each of its resources.

--since begins in the past: after a resourceVersion, or with a server that keeps a
history, at a time. Then the changes since that time come first, with the times at which
they arrived at the mirror, and the present follows without a break.

It does not end by itself. When the connection breaks, it resumes where it was. When
the server no longer has the changes since then, it lists again, prints the
difference, and says so on stderr. It ends if a resource does not exist or may not
be read, and on Ctrl-C. With several contexts it goes on with the other clusters, and
its exit code is 1 in the end. An object that does not exist is waited for, unless
--once is given: then it is an error.`,
		Example: `  tidings watch pods                         # in the context's namespace
  tidings watch deploy,rs,pods -A            # a rollout, everywhere
  tidings watch deployment web -o diff       # what changes in it, field by field
  tidings watch deployment/web pod/web-1     # objects of several resources
  tidings watch nodes --context a --context b
  tidings watch pods -L app --show-labels
  tidings watch pods -l app=web -o json | jq .object.status.phase
  tidings watch pods --output-watch-events -o jsonpath='{.type} {.object.metadata.name}{"\n"}'
  tidings watch pods --since 81234           # the changes after that
  tidings watch pods --since -2h --server http://127.0.0.1:8888 # the past, too
  tidings watch pods --once                  # the objects there are now
  tidings watch pods --server http://127.0.0.1:8888 # of a mirror
  tidings watch pods --demo                  # no cluster at hand`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New(`say what to watch, as in "tidings watch pods"; "tidings api-resources" lists what there is`)
			}
			wanted, err := watchArgs(args)
			if err != nil {
				return err
			}
			format, ok := eventFormats(line)[output]
			if !ok {
				if format, err = printing.format(output); err != nil {
					return err
				}
			}
			if (len(line.labels) > 0 || line.showLabels) && !slices.Contains([]string{"line", "wide", "diff"}, output) {
				return fmt.Errorf("--label-columns and --show-labels are for lines, not for -o %s", output)
			}
			f.format, f.needsAll, f.what = format, output != "line", strings.Join(args, " ")
			if g.folder.dir != "" {
				return fmt.Errorf("--history %s: a folder has only the past, and watch follows the present; \"tidings history\" prints the changes in it", g.folder.dir)
			}
			if f.since != "" {
				at, err := parseAt("since", f.since, time.Now())
				if err != nil {
					return err
				}
				if f.begin = at.Time; !f.begin.IsZero() {
					if err := g.noDemo(); err != nil {
						return err
					}
				}
			}
			f.showsLabels, f.showsDiff = len(line.labels) > 0 || line.showLabels, output == "diff"
			if timeout < 0 {
				return fmt.Errorf("--timeout %v: give a time such as 30s", timeout)
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
				defer cancel()
			}
			return f.watch(ctx, wanted, timeout)
		},
	}
	g.scopeFlags(cmd)
	g.serverFlag(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&output, "output", "o", "line", strings.Join(watchOutputs, ", ")+", name, or as for get: jsonpath=…")
	fl.StringSliceVarP(&line.labels, "label-columns", "L", nil, "add the values of these `labels` to each line")
	fl.BoolVar(&line.showLabels, "show-labels", false, "add all labels to each line")
	printing.addFlags(cmd)
	fl.StringVar(&f.since, "since", "", "print the changes after this `resourceVersion` or, with a history, time (-2h), without an initial list")
	fl.StringVar(&g.folder.dir, "history", "", "refused: a `folder` has only the past")
	_ = fl.MarkHidden("history")
	fl.BoolVar(&f.once, "once", false, "print the objects there are and end")
	fl.BoolVar(&f.watchOnly, "watch-only", false, "print changes only, without the objects there are")
	fl.DurationVar(&timeout, "timeout", 0, "end after this time; an error if --once has not finished")
	g.exclusive(cmd, "--since and --watch-only leave out the objects there are now, and --once prints nothing else", "since", "once", "watch-only")
	complete(cmd, "output", cobra.FixedCompletions(watchOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// watchArgs parses the arguments of watch: resources and then names, as for get, or, if
// one of them is resource/name, resources and objects in any order.
func watchArgs(args []string) ([]arg, error) {
	if len(args) < 2 || slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "/") }) {
		return parseArgs(args)
	}
	wanted, err := parseArgs(args[:1])
	if err != nil {
		return nil, err
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

var errTimeout = errors.New("--timeout is over")
