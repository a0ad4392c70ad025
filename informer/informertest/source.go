package informertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/broadcast"
)

// Source is an [informer.Source] of the objects that a test sets, for
// [informer.NewFromSource]. The methods are safe for concurrent use.
type Source[T Object] struct {
	mu      sync.Mutex
	version uint64 // of the newest change
	floor   uint64 // changes up to this version are forgotten
	objects map[string]T
	changes []versioned[T]
	err     error // of the next request, see Fail
	news    broadcast.Signal
}

type versioned[T Object] struct {
	version uint64
	informer.Change[T]
}

// NewSource returns a source with the given objects, as [Source.Set] sets them.
func NewSource[T Object](objects ...T) *Source[T] {
	s := &Source[T]{objects: map[string]T{}, version: 1}
	for _, obj := range objects {
		s.Set(obj)
	}
	return s
}

// Set adds an object, or replaces the one of the same namespace and name. The source
// keeps a copy with the next resourceVersion and, if obj has no uid, with that of the
// replaced object or a new one. Set returns that copy, which must not be modified.
func (s *Source[T]) Set(obj T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := obj.DeepCopyObject().(T)
	key, change := informer.Key(obj), informer.Change[T]{Type: informer.Added}
	old, exists := s.objects[key]
	if exists {
		change.Type = informer.Updated
	}
	switch {
	case stored.GetUID() != "":
	case exists:
		stored.SetUID(old.GetUID())
	default:
		stored.SetUID(uuid.NewUUID())
	}
	change.Object = stored
	s.objects[key] = stored
	s.add(change)
	return stored
}

// Delete deletes an object. It reports whether it existed.
func (s *Source[T]) Delete(namespace, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, old := range s.objects {
		if old.GetNamespace() == namespace && old.GetName() == name {
			delete(s.objects, key)
			s.add(informer.Change[T]{Type: informer.Deleted, Object: old.DeepCopyObject().(T)})
			return true
		}
	}
	return false
}

// add gives a change the next version. The lock is held.
func (s *Source[T]) add(change informer.Change[T]) {
	s.version++
	change.Object.SetResourceVersion(strconv.FormatUint(s.version, 10))
	s.changes = append(s.changes, versioned[T]{s.version, change})
	s.news.Notify()
}

// Fail makes the watch in progress or, if there is none, the next list or watch fail
// with err, once. The informer then waits and tries again.
func (s *Source[T]) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.news.Notify()
}

// Expire forgets past changes and ends the watch in progress, so that the informer
// lists again. Changes that were made meanwhile reach it by that list.
func (s *Source[T]) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.floor, s.changes = s.version, nil
	s.news.Notify()
}

// List implements [informer.Source].
func (s *Source[T]) List(_ context.Context, each func(T) error) (resourceVersion string, err error) {
	s.mu.Lock()
	if err = s.takeError(); err != nil {
		s.mu.Unlock()
		return "", err
	}
	version, objects := s.version, maps.Clone(s.objects)
	s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if err := each(objects[key]); err != nil {
			return "", err
		}
	}
	return strconv.FormatUint(version, 10), nil
}

// Watch implements [informer.Source].
func (s *Source[T]) Watch(ctx context.Context, resourceVersion string, each func(informer.Change[T]) error) error {
	at, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return errors.New("informertest.Source: a watch needs the resourceVersion of a list")
	}
	for ctx.Err() == nil {
		news := s.news.Next()
		changes, err := s.since(at)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if err := each(change.Change); err != nil {
				return err
			}
			at = change.version
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return nil
}

// since returns the changes after a version.
func (s *Source[T]) since(version uint64) ([]versioned[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.takeError(); err != nil {
		return nil, err
	}
	if version < s.floor {
		return nil, apierrors.NewResourceExpired("too old resource version: " + strconv.FormatUint(version, 10))
	}
	from, _ := slices.BinarySearchFunc(s.changes, version+1, func(c versioned[T], v uint64) int { return int(c.version) - int(v) })
	return s.changes[from:len(s.changes):len(s.changes)], nil
}

// takeError returns the error of Fail, once. The lock is held.
func (s *Source[T]) takeError() error {
	err := s.err
	s.err = nil
	return err
}
