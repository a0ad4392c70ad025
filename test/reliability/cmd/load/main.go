// Load puts a server under load, step by step, and measures it. See
// docs/reliability.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

const usual = "500/500,1000/500,2000/500,5000/500,5000/1000,5000/1500,5000/2000,10000/500,10000/1000"

func newCommand() *cobra.Command {
	o := load.Options{}
	var steps, table, picture string
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Put a server under load, step by step, and say what becomes of it",
		Long: `Load starts a server that mirrors a cluster in memory, opens watches, changes
objects and asks for lists, more at each step, and measures how long after a change
was made it has been delivered. All of it runs on this machine.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			for one := range strings.SplitSeq(steps, ",") {
				watches, changes, _ := strings.Cut(strings.TrimSpace(one), "/")
				w, err1 := strconv.Atoi(watches)
				c, err2 := strconv.Atoi(changes)
				if errors.Join(err1, err2) != nil || w < 0 || c < 0 {
					return fmt.Errorf("--steps %q: want watches/changes a second, such as 5000/500", one)
				}
				o.Steps = append(o.Steps, load.Step{Watches: w, Changes: c})
			}
			results, err := load.Run(cmd.Context(), o)
			if len(results) > 0 {
				load.Markdown(cmd.OutOrStdout(), results)
				err = errors.Join(err, write(table, func(f *os.File) error { load.Markdown(f, results); return nil }),
					write(picture, func(f *os.File) error { return load.Picture(f, results) }))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&steps, "steps", usual, "`watches/changes` a second, one step after the other")
	f.IntVar(&o.Objects, "objects", 5000, "objects there are")
	f.IntVar(&o.Bytes, "bytes", 1000, "size of each")
	f.IntVar(&o.Namespaces, "namespaces", 100, "namespaces they are in; a watch is of one of them")
	f.IntVar(&o.Wide, "wide", 10, "watches of everything")
	f.IntVar(&o.Lists, "lists", 50, "lists and gets a second")
	f.DurationVar(&o.Settle, "settle", 10*time.Second, "how long each load goes on before it is measured")
	f.DurationVar(&o.Step, "step", 30*time.Second, "how long it is measured")
	f.StringArrayVar(&o.Environment, "env", nil, "`NAME=value` for the server, such as GOMEMLIMIT=300MiB")
	f.StringArrayVar(&o.Flags, "flag", []string{"--max-watches=20000"}, "a flag of tidings serve, `--name=value`")
	f.StringVar(&table, "table", "", "a `file` to write the table to")
	f.StringVar(&picture, "picture", "", "a `file` to draw the picture into, as SVG")
	return cmd
}

func write(path string, what func(*os.File) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(what(f), f.Close())
}
