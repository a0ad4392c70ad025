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
	// An editor or a Kubernetes secret changes a file in several steps; settle
	// is the quiet after the last one, settleAtMost the longest wait for it.
	settle       = 100 * time.Millisecond
	settleAtMost = time.Second
	// Not every file system tells of changes, so the files are also read now
	// and then.
	lookAgain = 30 * time.Second
)

// Watch follows the kubeconfig that path means (see [FromKubeconfig]) and yields
// the clusters it describes: at once, and again after every change that matters,
// until ctx ends or the loop is left. Each map is the whole set, by context name,
// and belongs to the caller; a cluster about which nothing changed keeps its
// *rest.Config pointer, so a changed pointer means: replace it.
//
// contexts chooses: nothing means the current context, "*" in a name stands for
// anything ("*" alone for every context, including those added later). A context
// named literally must exist at first; removed later it leaves the set, and comes
// back when it does.
//
// An error never takes clusters away. When the files cannot be read, hold no
// context at all (as while being rewritten) or one context is broken, the error
// is yielded with the last good set, once until the situation changes; at the
// first step the set may be nil, and the caller decides whether to go on.
//
// Files are noticed when replaced by rename or symlink, as editors and mounted
// secrets do it; files that certificates and tokens come from are not followed
// here, client-go reads those again by itself.
func Watch(ctx context.Context, path string, contexts []string) iter.Seq2[map[string]*rest.Config, error] {
	return func(yield func(map[string]*rest.Config, error) bool) {
		f := &follower{path: path, contexts: contexts}
		var events chan fsnotify.Event // nil, so never ready, without a watcher
		var problems chan error
		if w, err := fsnotify.NewWatcher(); err == nil {
			defer w.Close()
			f.watcher, events, problems = w, w.Events, w.Errors
		} // else (out of inotify instances) looking again has to do
		f.watchFolders()
		look := time.NewTicker(lookAgain)
		defer look.Stop()
		for {
			if ctx.Err() != nil || f.read() && !yield(maps.Clone(f.set), f.err) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			case <-problems: // an overflow: something was missed
			case <-events:
				calm(ctx, events)
			}
			f.watchFolders()
		}
	}
}

// calm returns when no event has come for a while.
func calm(ctx context.Context, events <-chan fsnotify.Event) {
	quiet, latest := time.NewTimer(settle), time.NewTimer(settleAtMost)
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

// follower holds the last state that was yielded.
type follower struct {
	path     string
	contexts []string
	watcher  *fsnotify.Watcher

	started bool // there has been a set
	set     map[string]*rest.Config
	said    map[string]statement // what the kubeconfig said of each member of set
	err     error
}

// statement is everything a kubeconfig says about one context.
type statement struct {
	context api.Context
	cluster *api.Cluster
	user    *api.AuthInfo
}

// read looks at the files and reports whether there is anything new to say.
func (f *follower) read() bool {
	set, said, err := f.load()
	first := set != nil && !f.started
	if set == nil {
		set, said = f.set, f.said
	}
	changed := first || !maps.Equal(set, f.set) || !sameError(err, f.err)
	f.started = f.started || first
	f.set, f.said, f.err = set, said, err
	return changed
}

// load returns the set of clusters as it is now. A set beside an error is what
// remains good; no set means that nothing could be read.
func (f *follower) load() (map[string]*rest.Config, map[string]statement, error) {
	k, err := loadKubeconfig(f.path)
	if err != nil {
		return nil, nil, err
	}
	names, err := k.chooseAll(f.contexts, f.started)
	if err != nil {
		return nil, nil, err
	}
	set := make(map[string]*rest.Config, len(names))
	said := make(map[string]statement, len(names))
	var errs []error
	for _, name := range names {
		now := k.says(name)
		before, had := f.set[name]
		if had && reflect.DeepEqual(now, f.said[name]) {
			set[name], said[name] = before, now
			continue
		}
		cfg, err := k.restConfig(name)
		switch {
		case err == nil:
			set[name], said[name] = cfg, now
		case had:
			set[name], said[name] = before, f.said[name]
			errs = append(errs, err)
		default:
			errs = append(errs, err)
		}
	}
	return set, said, errors.Join(errs...)
}

// says collects what the kubeconfig says about a context. Which of several files
// says it makes no difference.
func (k *kubeconfig) says(name string) statement {
	s := statement{context: *k.raw.Contexts[name]}
	s.context.LocationOfOrigin = ""
	if c := k.raw.Clusters[s.context.Cluster]; c != nil {
		s.cluster = c.DeepCopy()
		s.cluster.LocationOfOrigin = ""
	}
	if u := k.raw.AuthInfos[s.context.AuthInfo]; u != nil {
		s.user = u.DeepCopy()
		s.user.LocationOfOrigin = ""
	}
	return s
}

func sameError(a, b error) bool {
	return a == b || a != nil && b != nil && a.Error() == b.Error()
}

// watchFolders watches the folders in which a change could change a file: not
// the files themselves, because those are replaced and not written. It is called
// again after each change, which may have moved a symlink or made a folder.
func (f *follower) watchFolders() {
	if f.watcher == nil {
		return
	}
	folders := make(map[string]bool)
	files, _ := kubeconfigFiles(f.path)
	for _, file := range files {
		for range 40 { // as many symlinks as the system follows
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
	for _, old := range f.watcher.WatchList() {
		if !folders[old] {
			_ = f.watcher.Remove(old) // gone already if its folder is
		}
	}
	for folder := range folders {
		_ = f.watcher.Add(folder) // what cannot be watched is looked at now and then
	}
}

// existingFolder resolves the symlinks in a folder's path, or finds the nearest
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
