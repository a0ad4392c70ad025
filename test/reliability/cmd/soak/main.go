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

// flags are those of all commands.
type flags struct {
	soak.Options
	mutant, out string
	calm        bool
}

func newCommand() *cobra.Command {
	o := &flags{}
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
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd, soak.Run) },
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 20, "nodes of the cluster")
	o.add(cmd)
	cmd.AddCommand(newFleetCommand())
	return cmd
}

func newFleetCommand() *cobra.Command {
	o := &flags{}
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "The same for mirrors that follow the cluster on NATS",
		Long: `Fleet starts a control plane, three NATS servers, two publishers of the cluster, of
which one publishes, and three replicas, each a process of its own. It changes the
cluster, kills, pauses and restarts all of these and damages the streams, and
compares what readers of the replicas get with what etcd has stored.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, soak.RunFleet) },
	}
	o.add(cmd)
	return cmd
}

// add adds the flags to a command.
func (o *flags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&o.For, "for", 10*time.Minute, "how long things happen and go wrong")
	f.Uint64Var(&o.Seed, "seed", 0, "what decides what happens and what goes wrong; 0: another one each time")
	f.Float64Var(&o.Rate, "rate", 20, "steps of churn a second")
	f.BoolVar(&o.calm, "calm", false, "without faults")
	f.StringArrayVar(&o.Only, "fault", nil, "inject only the fault with this `name`; may be given several times (default: all)")
	f.DurationVar(&o.Patience, "patience", 2*time.Minute, "how long a reader may take to get all events after the end of a fault")
	f.StringVar(&o.Server, "server", "", "a `file`, the command tidings, built already (default: it is built)")
	f.StringVar(&o.mutant, "mutant", "", "a defect to put into the server, to see that it is found: "+soak.MutantNames())
	f.BoolVar(&o.UntilFound, "until-found", false, "end with the first mismatch")
	f.BoolVar(&o.Race, "race", false, "build the server with the race detector")
	f.StringVar(&o.out, "report", "", "a `file` to write the report to as well")
	cmd.MarkFlagsMutuallyExclusive("server", "mutant")
	cmd.MarkFlagsMutuallyExclusive("server", "race")
	cmd.MarkFlagsMutuallyExclusive("calm", "fault")
}

// run runs a soak and writes its report.
func (o *flags) run(cmd *cobra.Command, run func(context.Context, soak.Options) (*soak.Report, error)) error {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	o.Faults = !o.calm
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if o.mutant != "" {
		m, err := soak.FindMutant(o.mutant)
		if err != nil {
			return err
		}
		o.Mutant = m
	}
	o.Log.Info("begins", "seed", o.Seed)
	report, err := run(cmd.Context(), o.Options)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if o.out != "" {
		f, err := os.Create(o.out)
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
}
