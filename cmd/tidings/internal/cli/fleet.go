package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// fleetPatience limits the time of a command about the fleet.
const fleetPatience = 30 * time.Second

func newFleet(g *globals) *cobra.Command {
	var conn natsFlags
	var streams streamFlags
	var url, output string
	// with runs a command with a connection to NATS.
	with := func(cmd *cobra.Command, do func(context.Context, jetstream.JetStream) error) error {
		if url == "" {
			return fmt.Errorf("say with --nats at which URL NATS is, such as --nats nats://nats:4222")
		}
		nc, err := conn.connect(url, g.log, true)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), fleetPatience)
		defer cancel()
		return do(ctx, js)
	}
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "List the clusters that are published on NATS, add and remove them",
		Long: `Fleet lists the clusters that mirrors publish on NATS JetStream, which of them
does, and what the streams take. "tidings serve --publish" makes the streams of its
clusters if its credentials permit that. They should not: fleet add makes them
for it. Fleet remove deletes those of a cluster that is no longer published; the
mirrors that follow it drop it half a minute later.`,
		Example: `  tidings fleet --nats nats://nats:4222 --nats-nkey admin.nk
  tidings fleet add prod --nats nats://nats:4222 --nats-nkey admin.nk --stream-replicas 3
  tidings fleet remove old --nats nats://nats:4222 --nats-nkey admin.nk`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output %s: leave it out, or choose json", output)
			}
			return with(cmd, func(ctx context.Context, js jetstream.JetStream) error {
				all, err := fleet.List(ctx, js)
				if err != nil {
					return fmt.Errorf("list the published clusters: %w", err)
				}
				return g.printFleet(all, output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	add := &cobra.Command{
		Use: "add CLUSTER...", Short: "Make the streams of clusters, or change their size", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := streams.check(); err != nil {
				return err
			}
			return with(cmd, func(ctx context.Context, js jetstream.JetStream) error {
				for _, name := range names {
					if err := fleet.AddCluster(ctx, js, name, streams.options(false)); err != nil {
						return fmt.Errorf("add cluster %s: %w", name, err)
					}
					fmt.Fprintf(g.streams.Out, "cluster %s added\n", termsafe.Line(name))
				}
				return nil
			})
		},
	}
	streams.flags(add)
	remove := &cobra.Command{
		Use: "remove CLUSTER...", Short: "Delete the streams of clusters", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return with(cmd, func(ctx context.Context, js jetstream.JetStream) error {
				for _, name := range names {
					if err := fleet.RemoveCluster(ctx, js, name); err != nil {
						return fmt.Errorf("remove cluster %s: %w", name, err)
					}
					fmt.Fprintf(g.streams.Out, "cluster %s removed\n", termsafe.Line(name))
				}
				return nil
			})
		},
	}
	for _, one := range []*cobra.Command{cmd, add, remove} {
		one.Flags().StringVar(&url, "nats", "", "`URL` of NATS; separate several servers by commas")
		conn.flags(g, one)
	}
	cmd.AddCommand(add, remove)
	return cmd
}

// printFleet prints the published clusters.
func (g *globals) printFleet(all []fleet.Published, output string) error {
	if output == "json" {
		text, err := json.MarshalIndent(append([]fleet.Published{}, all...), "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(g.streams.Out, "%s\n", text)
		return err
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(g.streams.Err, "No clusters are published.")
		return err
	}
	w := tabwriter.NewWriter(g.streams.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tPUBLISHER\tLAST\tMESSAGES\tLOG\tSNAPSHOTS\tREPLICAS")
	size := func(n uint64) string {
		switch {
		case n >= 10<<20:
			return resource.NewQuantity(int64(n>>20)<<20, resource.BinarySI).String()
		}
		return resource.NewQuantity(int64(n+1023)>>10<<10, resource.BinarySI).String()
	}
	for _, c := range all {
		last := "never"
		if !c.Last.IsZero() {
			last = duration.HumanDuration(max(0, time.Since(c.Last)))
		}
		publisher := c.Publisher
		switch {
		case publisher == "":
			publisher = "none yet"
		case c.Ended:
			publisher = "none (" + publisher + " has stopped)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\n", termsafe.Line(c.Name), termsafe.Line(publisher), last, c.Messages, size(c.LogBytes), size(c.Snapshots), c.Replicas)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range all {
		for _, resource := range slices.Sorted(maps.Keys(c.Unpublished)) {
			fmt.Fprintf(g.streams.Err, "%s of cluster %s is not published: %s\n", termsafe.Line(resource), termsafe.Line(c.Name), termsafe.Line(c.Unpublished[resource]))
		}
	}
	return nil
}
