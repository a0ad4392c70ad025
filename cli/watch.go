package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cluster"
)

var watchOutputs = []string{"line", "wide", "diff", "json", "yaml"}

func newWatch(g *globals) *cobra.Command {
	f := &follower{g: g}
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "watch RESOURCE[/NAME] ...",
		Short: "Print each change of any resource, and never lose the place",
		Long: `Watch prints what there is of one or more resources, and then each change, as
it happens:

  ADDED     Pod  default/web-1  2026-01-02T15:04:05Z  81234

which is what happened, the kind, the namespace and name, when the object was
created, and its resourceVersion. With several contexts the cluster comes first.

-o wide adds the age, the state, the owner and the labels; -o diff says below the
line what has changed in the object; -o json prints {"type": …, "object": …} on
one line; -o yaml prints documents.

A resource is named as for kubectl, by plural, short name or kind, alone or with
group and version: pods, deploy, Deployment, deployments.apps,
deployments.v1.apps. A category like "all" means each of its resources.

It does not end by itself. When the connection breaks it goes on where it was; when
the server no longer knows that place it lists again, prints the difference,
and says so on stderr. Only what was refused ends it: a resource that does not
exist or may not be read. Ctrl-C ends it too, in good order.`,
		Example: `  tidings watch pods                         # in the context's namespace
  tidings watch deploy,rs,pods -A            # a rollout, everywhere
  tidings watch deployment/web -o diff       # what changes in it, field by field
  tidings watch nodes --context a --context b
  tidings watch pods -l app=web -o json | jq .object.status.phase
  tidings watch pods --since 81234           # what happened after that
  tidings watch pods --once                  # what there is, and done
  tidings watch pods --server http://127.0.0.1:8888 # of a mirror
  tidings watch pods --demo                  # no cluster at hand`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New(`say what to watch, as in "tidings watch pods"; "tidings api-resources" lists what there is`)
			}
			wanted, err := wishes(args)
			if err != nil {
				return err
			}
			format, ok := newsFormats(g.screen)[output]
			if !ok {
				return unknownOutput(output, watchOutputs...)
			}
			f.format, f.needsAll, f.what = format, output != "line", strings.Join(args, " ")
			if f.since != "" {
				if v, err := strconv.ParseUint(f.since, 10, 64); err != nil || v == 0 {
					return fmt.Errorf("--since %s: a resourceVersion is a whole number, as in the last column of each line", f.since)
				}
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
	fl.StringVarP(&output, "output", "o", "line", strings.Join(watchOutputs, ", "))
	fl.StringVar(&f.since, "since", "", "start with the changes after this `resourceVersion`, without what there is")
	fl.BoolVar(&f.once, "once", false, "print what there is and end")
	fl.BoolVar(&f.watchOnly, "watch-only", false, "leave out what there is, print changes only")
	fl.DurationVar(&timeout, "timeout", 0, "end after this time; an error if --once is not done by then")
	cmd.MarkFlagsMutuallyExclusive("since", "once", "watch-only")
	complete(cmd, "output", cobra.FixedCompletions(watchOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var errTimeout = errors.New("--timeout is over")

// watch follows what is wanted in all clusters until ctx ends, which is no error
// unless something was still to be done.
func (f *follower) watch(ctx context.Context, wanted []wish, timeout time.Duration) error {
	clusters, done, err := f.g.clusters(ctx)
	if err != nil {
		return err
	}
	defer done()
	f.many = len(clusters) > 1
	all, err := f.find(ctx, clusters, wanted)
	if err == nil {
		err = f.run(ctx, all)
	}
	switch {
	case ctx.Err() == nil || brokenPipe(err):
		return err
	case !errors.Is(context.Cause(ctx), errTimeout):
		return nil // the user's wish
	case f.once && err != nil || f.once && !f.complete(len(all)):
		return fmt.Errorf("no complete list after %v%s", timeout, f.lastError())
	}
	return nil
}

// find resolves the wishes in each cluster. A cluster that cannot be reached is
// tried until it can.
func (f *follower) find(ctx context.Context, clusters []*cluster.Cluster, wanted []wish) ([]objects, error) {
	var all []objects
	for _, c := range clusters {
		err := patiently(ctx, f.g.screen.say, func() error {
			found, err := f.g.find(ctx, c, wanted)
			if err == nil {
				all = append(all, found...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// complete says whether each of the first lists is.
func (f *follower) complete(total int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, inf := range f.lists {
		if !inf.Status().Synced {
			return false
		}
	}
	return len(f.lists) == total && total > 0
}

// lastError says what kept a list from being complete.
func (f *follower) lastError() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, inf := range f.lists {
		if s := inf.Status(); !s.Synced && s.LastError != nil {
			return because(s.LastError)
		}
	}
	return ""
}
