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
		for _, f := range slices.Backward(closeAll) {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	names, err := g.folder.choose(store, g.screen.notice)
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
	var close func()
	if clusters, close, err = served(m, server.Options{Reads: read.Options{History: recording}, Edges: g.edges}, names); err != nil {
		return nil, nil, err
	}
	closeAll = append(closeAll, close)
	g.several = len(clusters) > 1
	return clusters, end, nil
}

// choose returns the clusters of the store that --cluster names.
func (f *folder) choose(store *history.Store, notice func(string)) ([]string, error) {
	there := store.Clusters()
	var names []string // with their times, if there are several of one name
	var chosen []history.Recorded
	for _, c := range there {
		text := c.Name
		if slices.ContainsFunc(there, func(o history.Recorded) bool { return c.Namesake != "" || o.Namesake == c.Name }) {
			text += fmt.Sprintf(" (%s to %s)", stamp(c.Begin), stamp(c.End))
		}
		names = append(names, text)
		if len(f.clusters) == 0 && c.Namesake == "" || slices.ContainsFunc(f.clusters, func(want string) bool { return cluster.NameMatches(want, c.Name) }) {
			chosen = append(chosen, c)
		}
	}
	list := strings.Join(names, ", ")
	switch {
	case len(there) == 0:
		return nil, fmt.Errorf("--history %s: the history is empty", f.dir)
	case len(f.clusters) == 0 && len(chosen) > 1:
		return nil, fmt.Errorf("--history %s: it has several clusters; choose with --cluster: %s", f.dir, list)
	}
	for _, want := range f.clusters {
		if !slices.ContainsFunc(chosen, func(c history.Recorded) bool { return cluster.NameMatches(want, c.Name) }) {
			return nil, fmt.Errorf("--history %s: it has no cluster %q; there are: %s", f.dir, want, list)
		}
	}
	var out []string
	for _, c := range chosen {
		out = append(out, c.Name)
		if c.End.After(f.newest) {
			f.newest = c.End
		}
	}
	for _, c := range there {
		if slices.Contains(out, c.Namesake) && !slices.Contains(out, c.Name) {
			notice(fmt.Sprintf("%s is the newest cluster of that name; another was recorded from %s to %s: --cluster %s", c.Namesake, stamp(c.Begin), stamp(c.End), c.Name))
		}
	}
	if f.newest.IsZero() { // the server ended before it had the first list
		return nil, fmt.Errorf("--history %s: nothing of %s has been recorded yet", f.dir, strings.Join(out, ", "))
	}
	return out, nil
}
