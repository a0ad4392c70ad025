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

// list fetches everything there is and replaces the store's contents with it.
// When ctx ends it returns nil at once, whatever the lister is doing.
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
		panic(got.panic) // in the caller's goroutine, as it came
	}
	if got.err != nil {
		return fmt.Errorf("failed to list %v: %w", r.description, got.err)
	}
	r.lost(false)
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
	r.listed(about.GetResourceVersion(), len(items))
	return nil
}

// pages lists page by page or in one piece. Pages are asked for where the
// server may answer from etcd; a list that names a version it has seen comes
// out of the watch cache, which it does only in one piece.
func (r *reflector) pages(ctx context.Context) (runtime.Object, error) {
	lister := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return r.lw.ListWithContext(ctx, opts)
	}))
	version := r.known("0")
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
		r.lost(true)
		list, inPages, err = lister.ListWithAlloc(context.Background(), metav1.ListOptions{ResourceVersion: r.known("0")})
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
	errNoBookmark = errors.New("the stream had nothing to say for long before the end of the initial events")
	errCutShort   = errors.New("the stream ended before the initial events did")
)

// watchList asks for a stream that begins with everything there is, replaces
// the store's contents with that, and returns the stream, which goes on as a
// watch. It returns nil and no error if ctx ends.
//
// A stream that ends before the initial events do is opened once more. Where
// client-go would do so again and again, without a pause, or would wait for ever
// because their end never comes, this returns an error, which leads to a list.
func (r *reflector) watchList(ctx context.Context) (watch.Interface, error) {
	for tries := 1; ctx.Err() == nil; tries++ {
		staged := newStage(r.store)
		start := r.clock.Now()
		var version string
		stream, err := r.lw.WatchWithContext(ctx, metav1.ListOptions{
			ResourceVersion:      r.known(""),
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			SendInitialEvents:    ptr.To(true),
			AllowWatchBookmarks:  true,
			TimeoutSeconds:       r.timeout(),
		})
		if err == nil {
			r.watching(native.Listing)
			f := feed{r: r, stream: stream, store: staged, initial: true, start: start}
			f.seen = func(v string, past bool) {
				if past {
					version = v
				}
			}
			err = f.run(ctx)
			if err == nil {
				r.lost(false)
				objects := len(staged.items)
				if err := staged.replace(version); err != nil {
					stream.Stop()
					return nil, fmt.Errorf("unable to sync watch-list result: %w", err)
				}
				r.listed(version, objects)
				return stream, nil
			}
			stream.Stop()
		}
		switch {
		case errors.Is(err, errStopped):
			return nil, nil
		case errors.Is(err, errCutShort) && tries == 1:
		case busy(err):
			klog.FromContext(ctx).V(2).Info("watch-list failed - backing off", "reflector", r.name, "type", r.description, "err", err)
			r.erred(err)
			if !r.backOff(ctx) {
				return nil, nil
			}
		case expired(err), tooLarge(err):
			// With no version the server gives the newest state there is. If
			// that is what failed, another try at once would be no better.
			r.mu.Lock()
			again := r.unavailable
			r.unavailable = true
			r.mu.Unlock()
			r.erred(err)
			if again && !r.backOff(ctx) {
				return nil, nil
			}
		default:
			return nil, err
		}
	}
	return nil, nil
}

// stage holds the initial events of a WatchList stream until their end: a
// server may send changes among them.
type stage struct {
	store  cache.ReflectorStore
	engine *inlet // the same, if it is the engine's, which takes items as they are
	order  []string
	items  map[string]item
}

func newStage(store cache.ReflectorStore) *stage {
	engine, _ := store.(*inlet)
	return &stage{store: store, engine: engine, items: map[string]item{}}
}

// Add transforms the object here and now if it can, so that what is held is
// what will be kept, and no object is transformed twice.
func (s *stage) Add(obj any) error {
	made, err := s.make(obj)
	if err != nil {
		return err
	}
	key := made.key()
	if _, ok := s.items[key]; !ok {
		s.order = append(s.order, key)
	}
	s.items[key] = made
	return nil
}

func (s *stage) make(obj any) (item, error) {
	if s.engine != nil {
		return s.engine.make(obj)
	}
	return informed(obj)
}

func (s *stage) Update(obj any) error { return s.Add(obj) }

func (s *stage) Delete(obj any) error {
	made, err := s.make(obj)
	if err == nil {
		delete(s.items, made.key())
	}
	return err
}

func (s *stage) Replace([]any, string) error { return nil }
func (s *stage) Resync() error               { return nil }

// replace hands on what is staged, in the order in which it came.
func (s *stage) replace(version string) error {
	items := make([]item, 0, len(s.items))
	for _, key := range s.order {
		if i, ok := s.items[key]; ok {
			items = append(items, i)
			delete(s.items, key) // one that was deleted and came again is in order twice
		}
	}
	if s.engine != nil {
		s.engine.replace(items, version)
		return nil
	}
	objects := make([]any, len(items))
	for n, i := range items {
		objects[n] = i.obj()
	}
	return s.store.Replace(objects, version)
}
