package cluster

import (
	"context"
	"errors"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	// An editor or a mounted secret changes a file in several steps. The files are
	// read when there was no event for settle, but at most settleMax after the
	// first.
	settle    = 100 * time.Millisecond
	settleMax = time.Second
	// Not every file system reports changes, so the files are also polled.
	pollEvery = 30 * time.Second
)

// Watch watches the kubeconfig files for path (see [FromKubeconfig]) and yields the
// clusters they describe: at once, and again after every relevant change, until
// ctx ends or the loop is left. Each map is the whole set by context name and
// belongs to the caller. A cluster that has not changed keeps its *rest.Config
// pointer; one with another pointer has to be replaced.
//
// contexts selects the contexts. None means the current context. "*" in a name
// matches anything, and alone every context, including those added later. A
// context with a literal name must exist in the beginning. If it is removed later,
// it leaves the set, and returns when it is added again.
//
// An error never removes clusters. If the files cannot be read, have no context at
// all (as while they are rewritten), or one context is invalid, Watch yields the
// error with the last valid set, once until something changes. In the first step
// the set may be nil, and the caller decides whether to continue.
//
// Watch notices files that are replaced by rename or symlink, as editors and
// mounted secrets do. It does not watch certificate and token files, which
// client-go reloads.
func Watch(ctx context.Context, path string, contexts []string) iter.Seq2[map[string]*rest.Config, error] {
	return func(yield func(map[string]*rest.Config, error) bool) {
		state := &watcher{path: path, contexts: contexts}
		var events chan fsnotify.Event // nil, so never ready, without a watcher
		var problems chan error
		if w, err := fsnotify.NewWatcher(); err == nil {
			defer w.Close()
			state.notify, events, problems = w, w.Events, w.Errors
		} // else (out of inotify instances) polling has to do
		state.watchFolders()
		poll := time.NewTicker(pollEvery)
		defer poll.Stop()
		for {
			if ctx.Err() != nil || state.read() && !yield(maps.Clone(state.set), state.err) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-poll.C:
			case <-problems: // an overflow: events were lost
			case <-events:
				waitUntilQuiet(ctx, events)
			}
			state.watchFolders()
		}
	}
}

// waitUntilQuiet returns when there has been no event for a while.
func waitUntilQuiet(ctx context.Context, events <-chan fsnotify.Event) {
	quiet, latest := time.NewTimer(settle), time.NewTimer(settleMax)
	defer quiet.Stop()
	defer latest.Stop()
	for {
		select {
		case <-events:
			quiet.Reset(settle)
		case <-quiet.C:
			return
		case <-latest.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// watcher holds the last state that was yielded.
type watcher struct {
	path     string
	contexts []string
	notify   *fsnotify.Watcher

	started bool // there has been a set
	set     map[string]*rest.Config
	entries map[string]entry // the kubeconfig's entries for each member of set
	err     error
}

// entry is everything in a kubeconfig that concerns one context.
type entry struct {
	context api.Context
	cluster *api.Cluster
	user    *api.AuthInfo
}

// read reads the files and reports whether the set or the error has changed.
func (w *watcher) read() bool {
	set, entries, err := w.load()
	first := set != nil && !w.started
	if set == nil {
		set, entries = w.set, w.entries
	}
	changed := first || !maps.Equal(set, w.set) || !sameError(err, w.err)
	w.started = w.started || first
	w.set, w.entries, w.err = set, entries, err
	return changed
}

// load returns the current set of clusters. If there is an error, too, the set has
// the last valid configuration of each cluster; without a set, nothing could be
// read.
func (w *watcher) load() (map[string]*rest.Config, map[string]entry, error) {
	k, err := loadKubeconfig(w.path)
	if err != nil {
		return nil, nil, err
	}
	names, err := k.chooseAll(w.contexts, w.started)
	if err != nil {
		return nil, nil, err
	}
	set := make(map[string]*rest.Config, len(names))
	entries := make(map[string]entry, len(names))
	var errs []error
	for _, name := range names {
		now := k.entry(name)
		before, had := w.set[name]
		if had && reflect.DeepEqual(now, w.entries[name]) {
			set[name], entries[name] = before, now
			continue
		}
		cfg, err := k.restConfig(name, nil)
		switch {
		case err == nil:
			set[name], entries[name] = cfg, now
		case had:
			set[name], entries[name] = before, w.entries[name]
			errs = append(errs, err)
		default:
			errs = append(errs, err)
		}
	}
	return set, entries, errors.Join(errs...)
}

// entry returns the entries that concern a context, without the files they are
// from.
func (k *kubeconfig) entry(name string) entry {
	e := entry{context: *k.raw.Contexts[name]}
	e.context.LocationOfOrigin = ""
	if c := k.raw.Clusters[e.context.Cluster]; c != nil {
		e.cluster = c.DeepCopy()
		e.cluster.LocationOfOrigin = ""
	}
	if u := k.raw.AuthInfos[e.context.AuthInfo]; u != nil {
		e.user = u.DeepCopy()
		e.user.LocationOfOrigin = ""
	}
	return e
}

func sameError(a, b error) bool {
	return a == b || a != nil && b != nil && a.Error() == b.Error()
}

// watchFolders watches the folders of the files and of the symlinks that lead to
// them. It does not watch the files, which are replaced rather than written. It is
// called again after each change, which may concern a symlink or create a folder.
func (w *watcher) watchFolders() {
	if w.notify == nil {
		return
	}
	folders := make(map[string]bool)
	files, _ := kubeconfigFiles(w.path)
	for _, file := range files {
		for range 40 { // the system's limit of symlinks
			folders[existingFolder(filepath.Dir(file))] = true
			target, err := os.Readlink(file)
			if err != nil {
				break
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(file), target)
			}
			file = target
		}
	}
	for _, old := range w.notify.WatchList() {
		if !folders[old] {
			_ = w.notify.Remove(old) // fails if the folder is gone
		}
	}
	for folder := range folders {
		_ = w.notify.Add(folder) // if it cannot be watched, it is polled
	}
}

// existingFolder resolves the symlinks in the path of a folder, or of the nearest
// folder above it that exists.
func existingFolder(folder string) string {
	for {
		if real, err := filepath.EvalSymlinks(folder); err == nil {
			if abs, err := filepath.Abs(real); err == nil {
				return abs
			}
			return real
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return folder
		}
		folder = parent
	}
}
