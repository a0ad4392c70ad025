package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// mirrors returns the clusters of the server that --server names. The server
// speaks the Kubernetes API for each.
func (g *globals) mirrors(ctx context.Context) ([]*cluster.Cluster, error) {
	base, err := g.conn.address()
	if err != nil {
		return nil, err
	}
	whole, err := g.mirror("", base)
	if err != nil || len(g.contexts) == 0 {
		return []*cluster.Cluster{whole}, err
	}
	defer whole.Close()
	names, err := g.mirrorNames(ctx, whole)
	if err != nil {
		return nil, err
	}
	var out []*cluster.Cluster
	for _, name := range names {
		c, err := g.mirror(name, base.JoinPath(server.ClusterPath(name)))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// mirror returns the mirror at a URL as a cluster with a name, "" for the host.
func (g *globals) mirror(name string, base *url.URL) (*cluster.Cluster, error) {
	cfg, err := g.conn.mirrorConfig(base)
	if err != nil {
		return nil, err
	}
	g.watchOver(cfg, "use --server ")
	c, err := cluster.New(name, cfg)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return c, nil
}

// mirrorNames returns the names of the server's clusters that --context selects,
// each once.
func (g *globals) mirrorNames(ctx context.Context, whole *cluster.Cluster) ([]string, error) {
	base := whole.BaseURL()
	body, err := httpGet(ctx, whole.HTTPClient(), base.JoinPath("clusters"), asObjects)
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
