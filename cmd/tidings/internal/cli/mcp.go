package cli

import (
	"context"
	"errors"
	"io"
	"net/url"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/agents"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

func newMCP(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Offer the clusters to an agent, as tools of the Model Context Protocol",
		Long: `Mcp speaks the Model Context Protocol on standard input and output, for an agent that
starts it: Claude Code, Cursor, VS Code, or a program of your own. It has eight tools
that read: clusters, find, count, get, changes, at, tree and wait. Nothing can be changed.

It mirrors what the tools read, with the rights of your kubeconfig, and keeps the past
of that for as long as it runs, in memory. Secrets are not mirrored. With --server it
asks a "tidings serve" instead, which has mirrored everything already. Such a server
offers the same tools itself, at /mcp.`,
		Example: `  claude mcp add tidings -- tidings mcp
  tidings mcp --context 'prod-*'
  tidings mcp --server https://mirror:6443 --token-file token
  tidings mcp --demo`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := g.readEdges(); err != nil {
				return err
			}
			return g.mcp(cmd.Context())
		},
	}
	g.serverFlag(cmd)
	g.edgesFlag(cmd)
	return cmd
}

// mcp answers an agent until its input ends.
func (g *globals) mcp(ctx context.Context) (err error) {
	if g.streams.In == nil {
		return errors.New("there is no standard input: an agent starts this command and speaks to it")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := agents.Options{Version: thisBuild().Version, Logger: g.log, Context: ctx}
	if g.conn.server != "" {
		base, err := g.conn.address()
		if err != nil {
			return err
		}
		whole, err := g.mirror("", base)
		if err != nil {
			return err
		}
		defer whole.Close()
		if len(g.contexts) > 0 {
			if o.Only, err = g.mirrorNames(ctx, whole); err != nil {
				return err
			}
			if len(o.Only) == 1 || defaultCluster(g.contexts) != "" {
				o.Cluster = o.Only[0]
			}
		}
		o.Transport, o.Base = whole.HTTPClient().Transport, whole.BaseURL()
	} else {
		handler, done, err := g.mirrorHere(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		o.Transport, o.Base = server.InProcess{Handler: handler.Handler()}, &url.URL{Scheme: "http", Host: "localhost"}
	}
	err = agents.NewServer(o).Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(g.streams.In), Writer: keptOpen{g.streams.Out}, MaxLineLength: 1 << 20})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// mirrorHere returns a server in this process that mirrors the clusters of the kubeconfig
// on demand, and keeps their past in memory. The caller must call done in the end.
func (g *globals) mirrorHere(ctx context.Context) (_ *server.Server, done func() error, err error) {
	var ends []func() error
	done = func() (err error) {
		for i := range ends {
			err = errors.Join(err, ends[len(ends)-1-i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	clusters, closeClusters, err := g.clusters(ctx)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, func() error { closeClusters(); return nil })
	past := historyFlags{thin: usuallyThinned}
	if err = past.check(); err != nil {
		return nil, nil, err
	}
	recording, closeHistory, err := past.open(true, g.log)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, closeHistory)
	mo := mirror.Options{Default: defaultCluster(g.contexts), IdleTimeout: time.Hour, Journal: recording, Logger: g.log}
	if g.demo {
		mo.Resources = append([]string{mirror.Everything}, demoRecorded...)
	}
	m, err := mirror.New(mo)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, func() error {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return m.Close(patience)
	})
	sets := map[string]*rest.Config{}
	for _, c := range clusters {
		sets[c.Name()] = c.Config()
	}
	if err = m.Set(ctx, sets); err != nil {
		return nil, nil, err
	}
	for _, name := range checkEdges(ctx, g.edges, clusters) {
		g.log.Warn("no cluster has a resource of --edges", "file", g.edgeFile, "resource", name)
	}
	s, err := server.New(m, server.Options{Reads: read.Options{History: recording}, Edges: g.edges, Version: thisBuild().Version, Logger: g.log})
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, func() error { s.Close(); return nil })
	return s, done, nil
}

// keptOpen is a stream that is not closed by its user.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }
