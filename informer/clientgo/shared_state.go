package clientgo

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

var errStarted = errors.New("informer has already started")

// SetWatchErrorHandler is SetWatchErrorHandlerWithContext without one.
func (s *sharedIndexInformer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) {
		handler(r, err)
	})
}

// SetWatchErrorHandlerWithContext sets what is told when a list fails or a
// watch cannot be opened. The reflector it is given has a name and a type
// description; it runs nothing. An informer that has started refuses.
func (s *sharedIndexInformer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.onError = handler
	return nil
}

// SetTransform sets what every object goes through, once, before anybody sees
// it. An informer that has started refuses.
func (s *sharedIndexInformer) SetTransform(handler cache.TransformFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.transform = handler
	return nil
}

// HasSynced says that the store has held a complete list.
func (s *sharedIndexInformer) HasSynced() bool { return cache.IsDone(s.HasSyncedChecker()) }

// HasSyncedChecker is HasSynced to wait for.
func (s *sharedIndexInformer) HasSyncedChecker() cache.DoneChecker {
	return checker{s.name(), s.synced}
}

func (s *sharedIndexInformer) name() string { return fmt.Sprintf("SharedIndexInformer %T", s.example) }

// LastSyncResourceVersion is the last version the source has told of; the store
// may be about to take it in.
func (s *sharedIndexInformer) LastSyncResourceVersion() string {
	s.mu.Lock()
	r := s.reflector
	s.mu.Unlock()
	if r == nil {
		return ""
	}
	return r.LastSyncResourceVersion()
}

// GetStore returns the store. What is written to it by others than the informer
// is kept, but no handler is told.
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

// GetController returns what tells whether the informer has synced. Running it
// does nothing, as in client-go.
func (s *sharedIndexInformer) GetController() cache.Controller { return idleController{s} }

// IsStopped says that the informer has run and does not any more.
func (s *sharedIndexInformer) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// idleController is an informer without a way to run it.
type idleController struct{ s *sharedIndexInformer }

func (c idleController) RunWithContext(context.Context)      {}
func (c idleController) Run(<-chan struct{})                 {}
func (c idleController) HasSynced() bool                     { return c.s.HasSynced() }
func (c idleController) HasSyncedChecker() cache.DoneChecker { return c.s.HasSyncedChecker() }
func (c idleController) LastSyncResourceVersion() string     { return c.s.LastSyncResourceVersion() }
