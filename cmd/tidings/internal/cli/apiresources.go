package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cluster"
)

var resourceOutputs = []string{"table", "wide", "name", "json"}

func newAPIResources(g *globals) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "List what can be watched",
		Long: `List the resources that the cluster serves and that can be listed and watched,
each in the version the server prefers. If discovery fails for some of them (most
often because an aggregated API is down), the rest is listed and the command fails.`,
		Example: `  tidings api-resources
  tidings api-resources -o name --context prod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(resourceOutputs, output) {
				return unknownOutput(output, resourceOutputs...)
			}
			clusters, done, err := g.clusters(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			return g.listResources(cmd.Context(), clusters, output)
		},
	}
	g.serverFlag(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", strings.Join(resourceOutputs, ", "))
	complete(cmd, "output", cobra.FixedCompletions(resourceOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (g *globals) listResources(ctx context.Context, clusters []*cluster.Cluster, output string) error {
	t := &grid{columns: []string{"NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"}}
	if output == "wide" {
		t.columns = append(t.columns, "VERBS", "CATEGORIES")
	}
	if len(clusters) > 1 {
		t.columns = append([]string{"CLUSTER"}, t.columns...)
	}
	type listed struct {
		Cluster    string   `json:"cluster"`
		Name       string   `json:"name"`
		Group      string   `json:"group"`
		Version    string   `json:"version"`
		Kind       string   `json:"kind"`
		Namespaced bool     `json:"namespaced"`
		ShortNames []string `json:"shortNames,omitempty"`
		Categories []string `json:"categories,omitempty"`
		Verbs      []string `json:"verbs"`
	}
	list := []listed{}
	var errs []error
	for _, c := range clusters {
		resources, err := c.Resources(ctx)
		errs = append(errs, err)
		for _, r := range resources {
			list = append(list, listed{c.Name(), r.Resource, r.Group, r.Version, r.Kind, r.Namespaced, r.ShortNames, r.Categories, r.Verbs})
			row := []string{r.Resource, strings.Join(r.ShortNames, ","), r.GroupVersion().String(), fmt.Sprint(r.Namespaced), r.Kind}
			if output == "name" {
				row = []string{r.String()}
			}
			if output == "wide" {
				row = append(row, strings.Join(r.Verbs, ","), strings.Join(r.Categories, ","))
			}
			if len(clusters) > 1 {
				row = append([]string{c.Name()}, row...)
			}
			t.rows = append(t.rows, row)
		}
	}
	err := g.screen.print(true, func(w io.Writer) {
		switch {
		case output == "json":
			encodeJSON(w, "  ", list)
		case len(list) > 0:
			if output == "name" {
				t.columns = nil
			}
			t.write(w)
		}
	})
	return errors.Join(append(errs, err)...)
}
