package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// folder is a history that is read without a server.
type folder struct {
	dir      string
	clusters []string
	newest   time.Time // the last moment that is known
}

// folderFlags adds the flags of a history in a folder.
func (g *globals) folderFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.folder.dir, "history", "", "`folder` that \"tidings serve --history\" has written, to read without a server")
	f.StringArrayVar(&g.folder.clusters, "cluster", nil, "`cluster` of the folder; repeat it, or use *, for several (default: the only one)")
	g.flagRules = append(g.flagRules, func(used *cobra.Command) error {
		if used != cmd || g.folder.dir == "" {
			return nil // serve has another --history
		}
		for _, other := range []string{"server", "kubeconfig", "demo", "context"} {
			if other := flagInUse(cmd, other); other != "" {
				return fmt.Errorf("--history and %s cannot be combined: the folder is read without a server or a cluster; --cluster chooses one of its clusters", other)
			}
		}
		return nil
	})
	g.needs("cluster", "history")
	_ = cmd.MarkFlagDirname("history")
}

// offline opens the clusters of a folder. They are answered by a server in this process,
// whose clusters have nothing but their history.
func (g *globals) offline(ctx context.Context) (_ []*cluster.Cluster, done func(), err error) {
	if info, err := os.Stat(g.folder.dir); err == nil && !info.IsDir() {
		return nil, nil, fmt.Errorf("--history %s: it is a file; name the folder", g.folder.dir)
	} else if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("--history %s: there is no such folder", g.folder.dir)
	}
	store, err := history.Open(g.folder.dir, history.Options{ReadOnly: true, Logger: g.log})
	if err != nil {
		return nil, nil, err
	}
	closeAll := []func(){func() { _ = store.Close() }}
	var clusters []*cluster.Cluster
	end := func() {
		for _, c := range clusters {
			c.Close()
		}
		for _, f := range slices.Backward(closeAll) {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	names, err := g.folder.choose(store)
	if err != nil {
		return nil, nil, err
	}
	thin, err := store.Thinned()
	if err != nil {
		return nil, nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	resources := []string{mirror.Everything}
	sets := map[string]*rest.Config{}
	for _, name := range names {
		sets[name] = &rest.Config{Host: "http://history.invalid", Transport: archive{store.Discovery(name)}}
		if store.Find(history.Resource{Cluster: name, Version: "v1", Resource: "secrets"}) != nil {
			resources = append(resources, "secrets")
		}
	}
	m, err := mirror.New(mirror.Options{Resources: resources, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	closeAll = append(closeAll, func() {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = m.Close(patience)
	})
	if err = m.Set(ctx, sets); err != nil {
		return nil, nil, err
	}
	recording := history.NewRecording(store, history.RecordingOptions{Secrets: true, Thin: thin})
	s, err := server.New(m, server.Options{Reads: read.Options{History: recording}, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	closeAll = append(closeAll, s.Close)
	for _, name := range names {
		c, err := cluster.New(name, &rest.Config{Host: "http://localhost" + server.ClusterPath(name), Transport: inProcess{s.Handler()}, QPS: -1})
		if err != nil {
			return nil, nil, err
		}
		clusters = append(clusters, c)
	}
	g.several = len(clusters) > 1
	return clusters, end, nil
}

// choose returns the clusters of the store that --cluster names.
func (f *folder) choose(store *history.Store) ([]string, error) {
	var there, out []string
	for _, series := range store.All() {
		if name := series.Of.Cluster; !slices.Contains(there, name) {
			there = append(there, name)
		}
		if seen, _ := series.Seen(); seen.After(f.newest) {
			f.newest = seen
		}
	}
	switch {
	case len(there) == 0:
		return nil, fmt.Errorf("--history %s: the history is empty", f.dir)
	case len(f.clusters) == 0 && len(there) > 1:
		return nil, fmt.Errorf("--history %s: it has several clusters; choose with --cluster: %s", f.dir, strings.Join(there, ", "))
	case len(f.clusters) == 0:
		return there, nil
	}
	for _, want := range f.clusters {
		found := slices.DeleteFunc(slices.Clone(there), func(name string) bool { return !cluster.NameMatches(want, name) })
		if len(found) == 0 {
			return nil, fmt.Errorf("--history %s: it has no cluster %q; there are: %s", f.dir, want, strings.Join(there, ", "))
		}
		for _, name := range found {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out, nil
}
