package clientgo

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

var errStarted = errors.New("informer has already started")

// SetWatchErrorHandler is SetWatchErrorHandlerWithContext without a context.
func (s *sharedIndexInformer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) {
		handler(r, err)
	})
}

// SetWatchErrorHandlerWithContext sets the handler that is called when a list
// fails or a watch cannot be opened. The cache.Reflector passed to it has a
// name and a type description, but does not run. After the start it returns an
// error.
func (s *sharedIndexInformer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.onError = handler
	return nil
}

// SetTransform sets the function that transforms every object once, before
// anything else sees it. After the start it returns an error.
func (s *sharedIndexInformer) SetTransform(handler cache.TransformFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.transform = handler
	return nil
}

// HasSynced reports whether the store has held a complete list.
func (s *sharedIndexInformer) HasSynced() bool { return cache.IsDone(s.HasSyncedChecker()) }

// HasSyncedChecker returns a checker to wait for HasSynced.
func (s *sharedIndexInformer) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{s.name(), s.synced}
}

func (s *sharedIndexInformer) name() string { return fmt.Sprintf("SharedIndexInformer %T", s.example) }

// LastSyncResourceVersion returns the last version received from the source.
// The store may not have applied it yet.
func (s *sharedIndexInformer) LastSyncResourceVersion() string {
	s.mu.Lock()
	r := s.reflector
	s.mu.Unlock()
	if r == nil {
		return ""
	}
	return r.LastSyncResourceVersion()
}

// GetStore returns the store. Handlers get no events for what the caller writes
// to it.
func (s *sharedIndexInformer) GetStore() cache.Store { return s.store }

// GetIndexer returns the store.
func (s *sharedIndexInformer) GetIndexer() cache.Indexer { return s.store }

// AddIndexers adds indexes to the store, at any time until the informer stops.
func (s *sharedIndexInformer) AddIndexers(indexers cache.Indexers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("indexer was not added because it has stopped already")
	}
	return s.store.AddIndexers(indexers)
}

// GetController returns a controller that reports whether the informer has
// synced. Running it does nothing, as in client-go.
func (s *sharedIndexInformer) GetController() cache.Controller { return idleController{s} }

// IsStopped reports whether the informer has run and ended.
func (s *sharedIndexInformer) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// idleController is a cache.Controller of an informer that cannot run it.
type idleController struct{ s *sharedIndexInformer }

func (c idleController) RunWithContext(context.Context)      {}
func (c idleController) Run(<-chan struct{})                 {}
func (c idleController) HasSynced() bool                     { return c.s.HasSynced() }
func (c idleController) HasSyncedChecker() cache.DoneChecker { return c.s.HasSyncedChecker() }
func (c idleController) LastSyncResourceVersion() string     { return c.s.LastSyncResourceVersion() }
