package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cluster"
)

// historySpan is how far back the changes of a selection are listed.
const historySpan = time.Hour

func newHistory(g *globals) *cobra.Command {
	var output, since, until string
	cmd := &cobra.Command{
		Use:   "history RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME ...",
		Short: "Print the changes of the past, and who made them",
		Long: `History prints each change of objects, oldest first:

  15:04:05  MODIFIED  Deployment shop/web  81240  kubectl-edit  spec.replicas

The columns are the local time at which the change arrived at the mirror, the change,
the kind and name (not if one object is named), the resourceVersion, who wrote it, and
the fields that changed: + was added, - was removed, any other was changed. On a
terminal long names are shortened in the middle, and fields that have no room are
counted. With several contexts the cluster comes before the kind.

-o diff prints the old and the new values below the line; -o json prints the change on
one line; -o yaml prints each version as a document.

Times in which nothing was recorded are shown in their place, as GAP. After one, the
changes are those that a list found. If the changes of a gap are recorded late, none
is missing, but they have the time at which the gap ended.

It reads a server that keeps a history ("tidings serve --history DIR"), or without any
server a folder that one has written. Without --since, it shows all that is kept of
objects that are named, and the last hour of others.`,
		Example: `  tidings history deploy/web --server http://127.0.0.1:8888
  tidings history deploy/web -o diff --since -48h --history copied/
  tidings history pods -l app=web --since -2h --until -1h
  tidings history deploy,rs,pods -A -o json | jq .fields`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New(`say of what, as in "tidings history deploy/web"`)
			}
			wanted, err := watchArgs(args)
			if err != nil {
				return err
			}
			if !slices.Contains(historyOutputs, output) {
				return unknownOutput(output, historyOutputs...)
			}
			s := span{objects: output == "diff" || output == "yaml"}
			now := time.Now()
			if since != "" {
				if s.since, err = parseTime("since", since, now); err != nil {
					return err
				}
			} else if slices.ContainsFunc(wanted, func(w arg) bool { return w.name == "" }) {
				s.since = now.Add(-historySpan)
			}
			if until != "" {
				if s.until, err = parseTime("until", until, now); err != nil {
					return err
				}
				if s.until.Before(s.since) {
					return errors.New("--until is before --since")
				}
			}
			return g.history(cmd.Context(), wanted, s, output)
		},
	}
	g.scopeFlags(cmd)
	g.serverFlag(cmd)
	g.folderFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "line", strings.Join(historyOutputs, ", "))
	f.StringVar(&since, "since", "", "begin at this `time`, or duration before now, as in -2h (default: an hour ago; of named objects, the beginning)")
	f.StringVar(&until, "until", "", "end at this `time`, or duration before now")
	complete(cmd, "output", cobra.FixedCompletions(historyOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// history prints the changes of what is wanted.
func (g *globals) history(ctx context.Context, wanted []arg, s span, output string) error {
	return g.ofPast(ctx, wanted, func(targets []target, errs []error) error {
		p := &historyPrinter{screen: g.screen, output: output, many: g.several, named: len(targets) == 1 && targets[0].name != ""}
		if s.until.IsZero() && !g.folder.newest.IsZero() && s.since.After(g.folder.newest) {
			g.screen.notice("the folder's history ends at " + stamp(g.folder.newest) + "; give --since")
		}
		told := &remarks{notice: g.screen.notice}
		var sequences []iter.Seq2[*change, error]
		for _, o := range targets {
			sequences = append(sequences, g.changesOf(ctx, o, s, told, nil))
		}
		printed := false
		err := inOrder(sequences, func(c *change) error {
			printed = true
			return p.print(c)
		})
		err = errors.Join(append(errs, err, g.screen.flush())...)
		if err == nil && !printed {
			since := "in all that is kept"
			if !s.since.IsZero() {
				since = "since " + stamp(s.since)
			}
			g.screen.notice("No changes " + since + ".")
		}
		return err
	})
}

// ofPast finds what is wanted in the clusters, and calls do with it. errs are of clusters
// that have failed, if there are several.
func (g *globals) ofPast(ctx context.Context, wanted []arg, do func(targets []target, errs []error) error) error {
	if err := g.noDemo(); err != nil {
		return err
	}
	g.ofThePast = true
	clusters, done, err := g.clusters(ctx)
	if err != nil {
		return err
	}
	defer done()
	var targets []target
	var errs []error
	for _, c := range clusters {
		found, err := g.find(ctx, c, wanted)
		if err != nil {
			errs = append(errs, named(c, err, g.several))
		}
		targets = append(targets, found...)
	}
	if len(targets) == 0 {
		return errors.Join(errs...)
	}
	err = do(targets, errs)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// named adds the cluster's name to an error, if there are several.
func named(c *cluster.Cluster, err error, several bool) error {
	if !several {
		return err
	}
	return fmt.Errorf("cluster %s: %w", c.Name(), err)
}
