package clientgo

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	native "github.com/tidings-io/tidings/internal/reflector"
)

// list lists all objects and replaces the contents of the store. When ctx ends it
// returns nil at once, even if the lister does not return.
func (r *reflector) list(ctx context.Context) error {
	type result struct {
		list  runtime.Object
		err   error
		panic any
	}
	done := make(chan result, 1)
	go func() {
		var got result
		defer func() {
			got.panic = recover()
			done <- got
		}()
		got.list, got.err = r.pages(ctx)
	}()
	var got result
	select {
	case got = <-done:
	case <-ctx.Done():
		return nil
	}
	if got.panic != nil {
		panic(got.panic) // in the caller's goroutine, as without one
	}
	if got.err != nil {
		return fmt.Errorf("failed to list %v: %w", r.description, got.err)
	}
	r.setUnavailable(false)
	about, err := meta.ListAccessor(got.list)
	if err != nil {
		return fmt.Errorf("unable to understand list result %#v: %w", got.list, err)
	}
	objects, err := meta.ExtractListWithAlloc(got.list)
	if err != nil {
		return fmt.Errorf("unable to understand list result %#v (%w)", got.list, err)
	}
	items := make([]any, len(objects))
	for i, o := range objects {
		items[i] = o
	}
	if err := r.store.Replace(items, about.GetResourceVersion()); err != nil {
		return fmt.Errorf("unable to sync list result: %w", err)
	}
	r.noteList(about.GetResourceVersion(), len(items))
	return nil
}

// pages lists page by page or in one piece. It requests pages if the server may answer
// from etcd. A list at a known version is served from the watch cache, which only does
// so in one piece.
func (r *reflector) pages(ctx context.Context) (runtime.Object, error) {
	lister := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return r.lw.ListWithContext(ctx, opts)
	}))
	version := r.startVersion("0")
	r.mu.Lock()
	paginated := r.paginated
	r.mu.Unlock()
	switch {
	case r.WatchListPageSize != 0:
		lister.PageSize = r.WatchListPageSize
	case !paginated && version != "" && version != "0":
		lister.PageSize = 0
	}
	list, inPages, err := lister.ListWithAlloc(context.Background(), metav1.ListOptions{ResourceVersion: version})
	if expired(err) || tooLarge(err) {
		r.setUnavailable(true)
		list, inPages, err = lister.ListWithAlloc(context.Background(), metav1.ListOptions{ResourceVersion: r.startVersion("0")})
	}
	if err != nil {
		return nil, err
	}
	if table, ok := list.(*unstructured.UnstructuredList); ok && isTable(table.GroupVersionKind()) {
		return nil, fmt.Errorf("unsupported list gvk: %v, type: %v", table.GroupVersionKind(), r.description)
	}
	if version == "0" && inPages {
		r.mu.Lock()
		r.paginated = true
		r.mu.Unlock()
	}
	return list, nil
}

var (
	errNoBookmark = errors.New("the stream brought nothing for too long before the end of the initial events")
	errCutShort   = errors.New("the stream ended before the initial events did")
)

// watchList opens a WatchList stream, replaces the contents of the store with the
// initial events, and returns the stream, which goes on as a watch. It returns nil and
// no error if ctx ends.
//
// A stream that ends before its initial events do is opened once more. After that
// watchList returns an error, which leads to a list: client-go would open streams
// again and again without a pause. It also does so if the end of the initial events
// does not come: client-go would wait for ever.
func (r *reflector) watchList(ctx context.Context) (watch.Interface, error) {
	for tries := 1; ctx.Err() == nil; tries++ {
		staged := newStagingStore(r.store)
		start := r.clock.Now()
		var version string
		stream, err := r.lw.WatchWithContext(ctx, metav1.ListOptions{
			ResourceVersion:      r.startVersion(""),
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			SendInitialEvents:    ptr.To(true),
			AllowWatchBookmarks:  true,
			TimeoutSeconds:       r.timeout(),
		})
		if err == nil {
			r.noteWatch(native.Listing)
			f := feed{r: r, stream: stream, store: staged, initial: true, start: start}
			f.advance = func(v string, ended bool) {
				if ended {
					version = v
				}
			}
			err = f.run(ctx)
			if err == nil {
				r.setUnavailable(false)
				objects := staged.staged.Len()
				if err := staged.replace(version); err != nil {
					stream.Stop()
					return nil, fmt.Errorf("unable to sync watch-list result: %w", err)
				}
				r.noteList(version, objects)
				return stream, nil
			}
			stream.Stop()
		}
		switch {
		case errors.Is(err, errStopped):
			return nil, nil
		case errors.Is(err, errCutShort) && tries == 1:
		case retryable(err):
			klog.FromContext(ctx).V(2).Info("watch-list failed - backing off", "reflector", r.name, "type", r.description, "err", err)
			r.noteError(err)
			if !r.backOff(ctx) {
				return nil, nil
			}
		case expired(err), tooLarge(err):
			// Without a version the server sends the latest state. If that is the
			// request that failed, wait before the next try.
			r.mu.Lock()
			again := r.unavailable
			r.unavailable = true
			r.mu.Unlock()
			r.noteError(err)
			if again && !r.backOff(ctx) {
				return nil, nil
			}
		default:
			return nil, err
		}
	}
	return nil, nil
}

// stagingStore is the store that the initial events of a WatchList stream go to, until
// their end.
type stagingStore struct {
	store  cache.ReflectorStore // the one to replace
	engine *queueStore          // the same, if it is the engine's, which takes items as they are
	staged *native.Stage[item]
}

func newStagingStore(store cache.ReflectorStore) *stagingStore {
	engine, _ := store.(*queueStore)
	return &stagingStore{store: store, engine: engine, staged: native.NewStage[item](0)}
}

// Add transforms the object at once if it can, so only the transformed object is kept
// in memory, and no object is transformed twice.
func (s *stagingStore) Add(obj any) error {
	made, err := s.make(obj)
	if err == nil {
		s.staged.Set(made)
	}
	return err
}

func (s *stagingStore) make(obj any) (item, error) {
	if s.engine != nil {
		return s.engine.newItem(obj)
	}
	return newInformerItem(obj)
}

func (s *stagingStore) Update(obj any) error { return s.Add(obj) }

func (s *stagingStore) Delete(obj any) error {
	made, err := s.make(obj)
	if err == nil {
		s.staged.Delete(made)
	}
	return err
}

func (s *stagingStore) Replace([]any, string) error { return nil }
func (s *stagingStore) Resync() error               { return nil }

// replace replaces the contents of the store with the staged objects, in the order in
// which they came.
func (s *stagingStore) replace(version string) error {
	items := s.staged.Take()
	if s.engine != nil {
		s.engine.replace(items, version)
		return nil
	}
	all := make([]any, len(items))
	for i, one := range items {
		all[i] = one.obj()
	}
	return s.store.Replace(all, version)
}
