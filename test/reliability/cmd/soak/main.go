// Soak runs a changing cluster with faults and checks that mirrors of it are correct.
// See docs/reliability.md.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/soak"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := soak.Options{}
	var mutant, out string
	var calm bool
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run a changing cluster with faults, and check that mirrors of it are correct",
		Long: `Soak starts a control plane with controllers, a scheduler and kwok, a server that
mirrors it, and readers of all kinds. It changes the cluster and injects faults for
the time in --for, and compares what readers get with what etcd has stored.

The report is written in Markdown. The exit status is 1 if a reader got anything
else, or if the server leaks memory, goroutines or files.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			klog.LogToStderr(false)
			klog.SetOutput(io.Discard)
			if o.Seed == 0 {
				o.Seed = uint64(time.Now().UnixNano())
			}
			o.Faults = !calm
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			if mutant != "" {
				m, err := soak.FindMutant(mutant)
				if err != nil {
					return err
				}
				o.Mutant = m
			}
			report, err := soak.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if out != "" {
				f, err := os.Create(out)
				if err != nil {
					return err
				}
				defer f.Close()
				w = io.MultiWriter(w, f)
			}
			report.Markdown(w)
			if n := len(report.Mismatches()); n > 0 {
				return fmt.Errorf("%d mismatches, with --seed %d", n, o.Seed)
			}
			if report.Checks() == 0 {
				return fmt.Errorf("nothing was checked")
			}
			return cmd.Context().Err()
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.For, "for", 10*time.Minute, "how long things happen and go wrong")
	f.Uint64Var(&o.Seed, "seed", 0, "what decides what happens and what goes wrong; 0: another one each time")
	f.IntVar(&o.Nodes, "nodes", 20, "nodes of the cluster")
	f.Float64Var(&o.Rate, "rate", 20, "steps of churn a second")
	f.BoolVar(&calm, "calm", false, "without faults")
	f.DurationVar(&o.Patience, "patience", 2*time.Minute, "how long a reader may take to get all events after the end of a fault")
	f.StringVar(&o.Server, "server", "", "a `file`, the command tidings, built already (default: it is built)")
	f.StringVar(&mutant, "mutant", "", "a defect to put into the server, to see that it is found: "+soak.MutantNames())
	f.BoolVar(&o.UntilFound, "until-found", false, "end with the first mismatch")
	f.BoolVar(&o.Race, "race", false, "build the server with the race detector")
	f.StringVar(&out, "report", "", "a `file` to write the report to as well")
	cmd.MarkFlagsMutuallyExclusive("server", "mutant")
	cmd.MarkFlagsMutuallyExclusive("server", "race")
	return cmd
}
