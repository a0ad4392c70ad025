package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
)

// edgesFlag adds --edges to a command. readEdges reads the file.
func (g *globals) edgesFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.edgeFile, "edges", "", "`file` of edges of your own between resources, for the neighbours of trees (docs/relations.md)")
	_ = cmd.MarkFlagFilename("edges", "yaml", "yml") // the flag exists
	if cmd.Flags().Lookup("server") != nil {
		g.exclusive(cmd, "a server has a file of its own, by --edges of serve", "edges", "server")
	}
}

// readEdges reads the file of --edges, if there is one.
func (g *globals) readEdges() (err error) {
	if g.edgeFile != "" {
		if g.edges, err = relations.ReadEdges(g.edgeFile); err != nil {
			return fmt.Errorf("--edges: %w", err)
		}
	}
	return nil
}

// checkEdges returns the resources of --edges that none of some clusters has. A cluster that
// does not answer may have them.
func checkEdges[C interface {
	Resolve(context.Context, string) (cluster.Resource, error)
}](ctx context.Context, edges *relations.Edges, clusters []C) (unknown []string) {
	if edges == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for _, name := range edges.Resources() {
		may := func(c C) bool {
			_, err := c.Resolve(ctx, name)
			none := (*cluster.NotFoundError)(nil)
			return !errors.As(err, &none) || len(none.Failed) > 0
		}
		if !slices.ContainsFunc(clusters, may) && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
