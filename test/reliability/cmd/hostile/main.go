// Hostile sends hostile requests to a kube-apiserver and to mirrors of it, and compares
// the responses. See docs/reliability.md.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/hostile"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := hostile.Options{}
	groups := hostile.MaxGroups
	cmd := &cobra.Command{
		Use:   "hostile",
		Short: "Send hostile requests to an API server and to mirrors of it, and compare",
		Long: `Hostile starts a control plane and servers that mirror it, and sends both the same
malicious requests, byte for byte. The exit status is 1 if a mirror disclosed an object
to a caller without the right to read it, or responded differently from the API server
in a way that docs/server.md does not list.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			klog.SetSlogLogger(slog.New(slog.DiscardHandler))
			if o.Seed == 0 {
				o.Seed = uint64(time.Now().UnixNano())
			}
			if o.Requests > 0 && !cmd.Flags().Changed("for") {
				o.For = 0
			}
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			report, err := hostile.Run(cmd.Context(), o)
			if report != nil {
				report.Write(cmd.OutOrStdout(), groups)
			}
			if err != nil {
				return err
			}
			if n := report.Findings(); n > 0 {
				return fmt.Errorf("%d groups of findings, with --seed %d", n, o.Seed)
			}
			return cmd.Context().Err()
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.For, "for", 90*time.Second, "how long requests are made")
	f.IntVar(&o.Requests, "requests", 0, "how many requests are made at most; alone, that is all that counts")
	f.Uint64Var(&o.Seed, "seed", 0, "what decides what is asked; 0: another one each time")
	f.StringVar(&o.Binary, "binary", "", "a `file`, the command tidings, built already (default: it is built)")
	f.BoolVar(&o.Bodies, "bodies", false, "compare bodies and headers of refusals, too")
	f.IntVar(&groups, "groups", groups, "how many groups of findings are printed")
	return cmd
}
