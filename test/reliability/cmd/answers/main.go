// Answers requests many long lists at a time from a server with little memory. See
// docs/reliability.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/answers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "answers:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o answers.Options
	var pods []int
	var forms []string
	cmd := &cobra.Command{
		Use:   "answers",
		Short: "Ask a server with little memory for many long lists at a time",
		Long: `Answers starts a server with a memory limit, as a process of its own, over a
cluster in memory, and has many clients ask for all pods at the same time, in one form
after the other. It ends with an error if an answer breaks off. All of it runs on this
machine, which must be Linux.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			for _, f := range answers.Forms() {
				if len(forms) == 0 || slices.Contains(forms, f.Name) {
					o.Forms = append(o.Forms, f)
				}
			}
			var results []answers.Result
			var failed error
			for _, n := range pods {
				o.Pods = n
				some, err := answers.Run(cmd.Context(), o)
				results = append(results, some...)
				if failed = errors.Join(failed, err); cmd.Context().Err() != nil {
					break
				}
			}
			answers.Markdown(cmd.OutOrStdout(), results)
			for _, r := range results {
				if r.Cut+r.Failed > 0 {
					failed = errors.Join(failed, fmt.Errorf("%d pods, %s: %d answers broke off, %d failed: %s", r.Pods, r.Form.Name, r.Cut, r.Failed, r.Why))
				}
			}
			return failed
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&pods, "pods", []int{1000, 20_000}, "how many pods there are")
	f.IntVar(&o.Clients, "clients", 60, "lists at a time")
	f.IntVar(&o.Rounds, "rounds", 2, "how many times each client asks for each form")
	f.StringVar(&o.Limit, "memory-limit", "512Mi", "the server's memory limit")
	f.StringArrayVar(&forms, "form", nil, "a form, such as \"YAML, gzip\"; without, all")
	return cmd
}
