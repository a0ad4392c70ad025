package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// serverFlag adds --server, which makes the command read from a mirror.
func (g *globals) serverFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.server, "server", "", "`URL` of a \"tidings serve\" to ask instead of the cluster; --context then names clusters of it")
	complete(cmd, "server", cobra.FixedCompletions([]string{"http://" + server.DefaultAddr}, cobra.ShellCompDirectiveNoFileComp))
}

// mirrors returns the clusters of the server that --server names. The server
// speaks the Kubernetes API for each. No credentials are sent: for a server that
// requires them, use the kubeconfig that it writes.
func (g *globals) mirrors(ctx context.Context) ([]*cluster.Cluster, error) {
	if g.demo || g.kubeconfig != "" {
		return nil, errors.New("--server cannot be combined with --demo or --kubeconfig; for a server with authentication, pass the file that its --write-kubeconfig wrote as --kubeconfig, without --server")
	}
	address := g.server
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--server %s: give a URL such as http://127.0.0.1:8888", g.server)
	}
	if len(g.contexts) == 0 {
		c, err := cluster.New("", &rest.Config{Host: base.String()})
		if err != nil {
			return nil, fmt.Errorf("--server: %w", err)
		}
		return []*cluster.Cluster{c}, nil
	}
	names, err := g.mirrorNames(ctx, base)
	if err != nil {
		return nil, err
	}
	var out []*cluster.Cluster
	for _, name := range names {
		c, err := cluster.New(name, &rest.Config{Host: base.JoinPath(server.ClusterPath(name)).String()})
		if err != nil {
			return nil, fmt.Errorf("--server: %w", err)
		}
		out = append(out, c)
	}
	return out, nil
}

// mirrorNames returns the names of the server's clusters that --context selects,
// each once.
func (g *globals) mirrorNames(ctx context.Context, base *url.URL) ([]string, error) {
	body, err := httpGet(ctx, http.DefaultClient, base.JoinPath("clusters"), asObjects)
	if err != nil {
		return nil, fmt.Errorf("get the clusters of %s: %w", base.Redacted(), err)
	}
	var answer struct {
		Data []struct {
			Name string `json:"name"`
		} `json:"data"`
	}
	if err := decode(body, &answer); err != nil {
		return nil, fmt.Errorf("read the clusters of %s (is it \"tidings serve\"?): %w", base.Redacted(), err)
	}
	var there []string
	for _, c := range answer.Data {
		there = append(there, c.Name)
	}
	var out []string
	for _, want := range g.contexts {
		found := slices.DeleteFunc(slices.Clone(there), func(name string) bool { return !cluster.NameMatches(want, name) })
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no cluster %q; there are: %s", base.Redacted(), want, strings.Join(there, ", "))
		}
		for _, name := range found {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out, nil
}
