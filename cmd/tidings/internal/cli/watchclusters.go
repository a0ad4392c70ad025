package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/source"
)

// part is the watch of one cluster. watcher.mu guards what changes.
type part struct {
	cluster *cluster.Cluster
	targets []target // nil until they are found
	lists   []anyInformer
	absent  []error // objects that do not exist
	failed  bool
}

// watch follows wanted in all clusters until ctx ends. The end of ctx is an error
// only if --once has not finished, or if a cluster has failed before.
func (f *watcher) watch(ctx context.Context, wanted []arg, timeout time.Duration) error {
	clusters, done, err := f.g.clusters(ctx)
	if err != nil {
		return err
	}
	defer done()
	f.many = len(clusters) > 1
	for _, c := range clusters {
		f.parts = append(f.parts, &part{cluster: c})
	}
	err = f.run(ctx, wanted)
	switch {
	case ctx.Err() == nil || brokenPipe(err):
		return err
	case f.once && !f.complete() && errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("no complete list after %v%s", timeout, f.lastError())
	case f.once && !f.complete():
		return context.Cause(ctx)
	}
	return f.failures()
}

// run follows wanted in all clusters until ctx ends, the output fails, or all
// clusters have failed. With once the initial lists are printed in the order of the
// clusters and of wanted.
func (f *watcher) run(ctx context.Context, wanted []arg) error {
	if !f.begin.IsZero() {
		if err := f.replay(ctx, wanted); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	progress, synced := context.WithCancel(ctx)
	defer synced()
	var shown errgroup.Group
	shown.Go(func() error { f.showProgress(progress); return nil })
	turn := make(chan struct{})
	close(turn)
	for _, p := range f.parts {
		before, after := turn, make(chan struct{})
		turn = after
		group.Go(func() error { return f.watchCluster(ctx, p, wanted, before, sync.OnceFunc(func() { close(after) })) })
	}
	err := group.Wait()
	synced()
	_ = shown.Wait()
	if flushed := f.g.screen.flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	if f.once {
		f.reportEmpty()
	}
	return f.failures()
}

// watchCluster follows wanted in one cluster. With once it prints nothing until
// before is closed, and calls after when the next cluster may print. If there are
// several clusters, its failure is not that of the others.
func (f *watcher) watchCluster(ctx context.Context, p *part, wanted []arg, before <-chan struct{}, after func()) error {
	defer after()
	var err error
	switch {
	case p.failed: // in the past
		return nil
	case p.targets == nil:
		err = f.find(ctx, p, wanted, after)
	}
	if err == nil {
		err = f.followAll(ctx, p, before)
	}
	if err == nil || !f.many || ctx.Err() != nil || brokenPipe(err) {
		return err
	}
	f.fail(p, err)
	return nil
}

// fail notes and tells that one of several clusters has failed.
func (f *watcher) fail(p *part, err error) {
	f.mu.Lock()
	p.failed = true
	f.mu.Unlock()
	for _, text := range f.g.failures(err) {
		f.g.screen.notice(text)
	}
}

// failures returns the error of a watch in which some of several clusters failed.
// What was wrong has been said.
func (f *watcher) failures() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var failed []string
	for _, p := range f.parts {
		if p.failed {
			failed = append(failed, p.cluster.Name())
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d clusters failed: %s", len(failed), len(f.parts), strings.Join(failed, ", "))
}

// find resolves wanted in a cluster. While the cluster cannot be reached it tries
// again, and calls waits.
func (f *watcher) find(ctx context.Context, p *part, wanted []arg, waits func()) error {
	var found []target
	err := retry(ctx, func(text string) { waits(); f.g.screen.notice(text) }, func() (err error) {
		if found, err = f.g.find(ctx, p.cluster, wanted); err == nil && f.since != "" && f.begin.IsZero() {
			err = f.checkSince(ctx, found)
			for i := range found {
				found[i].from = f.since
			}
		}
		return err
	})
	f.mu.Lock()
	p.targets = found
	f.mu.Unlock()
	return err
}

// checkSince rejects a --since of the future: a server would wait for it in silence.
func (f *watcher) checkSince(ctx context.Context, all []target) error {
	since, _ := strconv.ParseUint(f.since, 10, 64) // it has been checked
	for _, o := range all {
		q := query{labels: f.g.selector, fields: o.fieldSelector(f.g.fieldSelector), limit: 1}
		o.name = ""
		page, err := fetchMetadata(ctx, o, q)
		if permanent(err) {
			continue // the watch will say it
		}
		if err != nil {
			return err
		}
		if newest, err := strconv.ParseUint(page.ResourceVersion, 10, 64); err == nil && since > newest {
			return &uselessError{fmt.Errorf("--since %s is in the future", f.since), fmt.Sprintf("%s: the newest resourceVersion is %s", o, page.ResourceVersion)}
		}
	}
	return nil
}

// followAll follows the targets of a cluster.
func (f *watcher) followAll(ctx context.Context, p *part, turn <-chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, o := range p.targets {
		before, after := turn, make(chan struct{})
		turn = after
		group.Go(func() error {
			if f.needsAll {
				return follow[*unstructured.Unstructured](ctx, f, p, o, before, after)
			}
			return follow[*metav1.PartialObjectMetadata](ctx, f, p, o, before, after)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return errors.Join(p.absent...)
}

// firstList reports an object that does not exist. empty says that the first list of
// o is empty.
func (f *watcher) firstList(ctx context.Context, p *part, o target, empty bool) {
	selected := f.g.selector != "" || f.g.fieldSelector != ""
	f.mu.Lock()
	f.found = f.found || !empty
	if empty && o.name != "" && !selected && f.once {
		p.absent = append(p.absent, o.notFound())
	}
	f.mu.Unlock()
	if !empty || o.name == "" || selected {
		return
	}
	var hint string
	if _, err := o.cluster.Resolve(ctx, o.name); err == nil {
		hint = fmt.Sprintf("; for several resources, write %s,%s", o.resource.Resource, o.name)
	}
	switch {
	case !f.once:
		f.g.screen.notice(f.g.failure(o.notFound()) + "; waiting for it" + hint)
	case hint != "":
		f.g.screen.notice(strings.TrimPrefix(hint, "; "))
	}
}

// reportEmpty says that nothing was printed, if no error says it.
func (f *watcher) reportEmpty() {
	f.mu.Lock()
	defer f.mu.Unlock()
	where := ""
	for _, p := range f.parts {
		if f.found || p.failed || len(p.absent) > 0 {
			return
		}
		for _, o := range p.targets {
			if o.namespace != "" {
				where = " in namespace " + o.namespace
			}
		}
	}
	f.g.screen.notice("No resources found" + where + ".")
}

// notFound is the error for an object that does not exist.
func (o target) notFound() error {
	r := o.resource
	return &source.Error{
		Target: source.Target{Cluster: o.cluster.Name(), Resource: r.GVR(), Kind: r.Kind, Namespace: o.namespace},
		Verb:   "get", Err: apierrors.NewNotFound(r.GroupResource(), o.name),
	}
}

// complete reports whether all first lists of the clusters that have not failed are
// complete.
func (f *watcher) complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		if p.failed {
			continue
		}
		if p.targets == nil || len(p.lists) < len(p.targets) {
			return false
		}
		for _, inf := range p.lists {
			if !inf.Status().Synced {
				return false
			}
		}
	}
	return true
}

// lastError formats the error that kept a list from being complete.
func (f *watcher) lastError() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		for _, inf := range p.lists {
			if s := inf.Status(); !s.Synced && s.LastError != nil {
				return because(s.LastError)
			}
		}
	}
	return ""
}

// showProgress shows a line on a terminal until all first lists are complete.
func (f *watcher) showProgress(ctx context.Context) {
	if !f.g.screen.streams.ErrTerminal || f.since != "" {
		return
	}
	defer f.g.screen.showProgress("")
	tick := time.NewTimer(progressAfter)
	defer tick.Stop()
	for !f.complete() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(progressEvery)
		}
		var counts []count
		f.mu.Lock()
		for _, p := range f.parts {
			for _, inf := range p.lists {
				if s := inf.Status(); !s.Synced && !p.failed {
					counts = append(counts, count{s.Received, s.Expected})
				}
			}
		}
		f.mu.Unlock()
		if len(counts) > 0 {
			f.g.screen.showProgress(progressLine(f.what, counts))
		}
	}
}
