package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// completionTimeout limits the time that a completion takes.
const completionTimeout = 3 * time.Second

// complete registers the completion of a flag. It panics if the flag does not
// exist.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}

func unknownOutput(got string, known ...string) error {
	return fmt.Errorf("--output %s: choose %s", got, strings.Join(known, ", "))
}

// completeContexts offers the contexts of the kubeconfig.
func (g *globals) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	contexts, err := cluster.Contexts(g.kubeconfig)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, c := range contexts {
		if !slices.Contains(g.contexts, c.Name) {
			out = append(out, cobra.CompletionWithDesc(c.Name, c.Server))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces offers the namespaces of the first cluster.
func (g *globals) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	g.complete(cmd, func(ctx context.Context, c *cluster.Cluster) {
		out = g.names(ctx, c, "namespaces.v1", "")
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeResources offers resources, continuing a list with commas, and after
// "resource/" the names of its objects.
func (g *globals) completeResources(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var out []string
	before, last := "", typed
	if i := strings.LastIndex(typed, ","); i >= 0 {
		before, last = typed[:i+1], typed[i+1:]
	}
	g.complete(cmd, func(ctx context.Context, c *cluster.Cluster) {
		if resource, _, named := strings.Cut(last, "/"); named {
			for _, name := range g.names(ctx, c, resource, g.namespaceOf(c)) {
				out = append(out, before+resource+"/"+name)
			}
			return
		}
		all, _ := c.Resources(ctx) // offer what could be found
		seen := make(map[string]bool)
		for _, r := range all {
			name := r.Resource
			if seen[name] { // of another group, too: offer the full name
				name = r.String()
			}
			seen[name] = true
			if name == termsafe.Line(name) {
				out = append(out, cobra.CompletionWithDesc(before+name, termsafe.Line(r.Kind+" "+r.GroupVersion().String())))
			}
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeNames offers, after a resource, the names of its objects.
func (g *globals) completeNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 || strings.Contains(args[0], "/") {
		return g.completeResources(cmd, args, typed)
	}
	var out []string
	g.complete(cmd, func(ctx context.Context, c *cluster.Cluster) {
		out = slices.DeleteFunc(g.names(ctx, c, args[0], g.namespaceOf(c)), func(s string) bool { return slices.Contains(args[1:], s) })
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

// complete calls do with the first cluster and a short timeout. On an error there
// is nothing to offer.
func (g *globals) complete(cmd *cobra.Command, do func(context.Context, *cluster.Cluster)) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	clusters, done, err := g.clusters(ctx)
	if err != nil {
		return
	}
	defer done()
	do(ctx, clusters[0])
}

// names returns the names of up to 500 objects of a resource.
func (g *globals) names(ctx context.Context, c *cluster.Cluster, resource, namespace string) []string {
	r, err := c.Resolve(ctx, resource)
	if err != nil {
		return nil
	}
	o := target{cluster: c, resource: r}
	if r.Namespaced {
		o.namespace = namespace
	}
	page, err := fetchMetadata(ctx, o, query{})
	if err != nil {
		return nil
	}
	var out []string
	for _, item := range page.Items {
		// Do not offer names that a shell cannot show or type.
		if item.Name == termsafe.Line(item.Name) {
			out = append(out, item.Name)
		}
	}
	return out
}
