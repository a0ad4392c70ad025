package clientgo

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
)

// store is a cache.Indexer and a cache.TransactionStore on the engine's
// indexer. Readers do not delay writers.
type store struct {
	ix    *indexer.Indexer[item]
	keyOf cache.KeyFunc
	// shadow, if not nil, is a store of client-go's with the options the caller
	// gave. These options are functions on an unexported type of client-go's,
	// so the only way to apply them is to write each object through such a
	// store. It transforms and counts the object. It holds at most one.
	shadow cache.Store

	mu       sync.Mutex // held by writers
	version  string
	indexers cache.Indexers
}

var (
	_ cache.Indexer          = &store{}
	_ cache.TransactionStore = &store{}
)

// NewStore returns a store of objects under the keys that keyFunc makes, as
// cache.NewStore does (client-go's store.go). It is safe for concurrent use.
// Get and GetByKey never wait. A list waits for a write in progress; nothing
// waits for a list.
func NewStore(keyFunc cache.KeyFunc, opts ...cache.StoreOption) cache.Store {
	return newStore(keyFunc, nil, opts)
}

// NewIndexer is [NewStore] with indexes, as cache.NewIndexer is. If an index
// function returns an error, the write that called it panics, as in client-go.
func NewIndexer(keyFunc cache.KeyFunc, indexers cache.Indexers, opts ...cache.StoreOption) cache.Indexer {
	return newStore(keyFunc, indexers, opts)
}

func newStore(keyFunc cache.KeyFunc, indexers cache.Indexers, opts []cache.StoreOption) *store {
	s := &store{
		ix:       indexer.New(indexer.Options[item]{Literal: true, Same: sameVersion}),
		keyOf:    keyFunc,
		indexers: cache.Indexers{},
	}
	if len(opts) > 0 {
		s.shadow = cache.NewStore(func(any) (string, error) { return "", nil }, opts...)
	}
	if err := s.AddIndexers(indexers); err != nil {
		panic(err) // cannot happen: there are no indexes yet
	}
	return s
}

// key returns the key of obj, or a cache.KeyError.
func (s *store) key(obj any) (string, error) {
	key, err := s.keyOf(obj)
	if err != nil {
		return "", cache.KeyError{Obj: obj, Err: err}
	}
	return key, nil
}

// transformed applies the options of the store to an object. The caller holds
// the lock.
func (s *store) transformed(obj any) (any, error) {
	if s.shadow == nil {
		return obj, nil
	}
	if err := s.shadow.Add(obj); err != nil {
		return nil, err
	}
	obj, _, err := s.shadow.GetByKey("")
	return obj, err
}

// applyLocked applies deltas, then sets the version they lead to. In this order
// a reader of the version finds at least the objects of that version.
func (s *store) applyLocked(deltas ...delta.Delta[item]) {
	s.ix.Apply(deltas)
	for i := len(deltas) - 1; i >= 0; i-- {
		if version, ok := versionOf(&deltas[i]); ok {
			s.version = version
			break
		}
	}
	if s.shadow != nil {
		s.shadow.Bookmark(s.version) // for its gauge
	}
}

// versionOf returns the version that a delta leads to, if it has one.
func versionOf(d *delta.Delta[item]) (string, bool) {
	switch d.Type {
	case delta.Replaced, delta.Bookmark:
		return d.List.ResourceVersion, true
	case delta.Sync:
		return "", false
	}
	o, err := meta.Accessor(d.Object.obj())
	if err != nil {
		return "", false
	}
	return o.GetResourceVersion(), true
}

// sameVersion reports whether an update did not change the resourceVersion.
func sameVersion(old, new item) bool {
	was, err := meta.Accessor(old.obj())
	if err != nil {
		return false
	}
	is, err := meta.Accessor(new.obj())
	return err == nil && was.GetResourceVersion() == is.GetResourceVersion()
}

// apply applies deltas from the source of an informer.
func (s *store) apply(deltas ...delta.Delta[item]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyLocked(deltas...)
}

// Add stores obj and replaces an object with the same key. Handlers of the
// store's informer get no event.
func (s *store) Add(obj any) error { return s.set(obj) }

// Update is the same as Add.
func (s *store) Update(obj any) error { return s.set(obj) }

func (s *store) set(obj any) error {
	key, err := s.key(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj, err = s.transformed(obj); err != nil {
		return err
	}
	s.applyLocked(delta.Delta[item]{Type: delta.Updated, Object: newItem(key, obj), Quiet: true})
	return nil
}

// Delete removes the object with the key of obj, if there is one.
func (s *store) Delete(obj any) error {
	key, err := s.key(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyLocked(delta.Delta[item]{Type: delta.Deleted, Object: newItem(key, obj), Quiet: true})
	return nil
}

// Replace replaces all objects of the store by those of list. Readers see
// either all of the old objects or all of the new ones.
func (s *store) Replace(list []any, resourceVersion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]item, 0, len(list))
	for _, obj := range list {
		key, err := s.key(obj)
		if err != nil {
			return err
		}
		if obj, err = s.transformed(obj); err != nil {
			return err
		}
		items = append(items, newItem(key, obj))
	}
	s.applyLocked(delta.Delta[item]{Type: delta.Replaced, List: &delta.List[item]{Items: items, ResourceVersion: resourceVersion}, Quiet: true})
	return nil
}

// Transaction applies all writes at once: readers see all of them or none.
// Objects without a key are left out and listed in the error.
func (s *store) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	deltas := make([]delta.Delta[item], 0, len(txns))
	successful := make([]int, 0, len(txns))
	var errs []error
	for i, txn := range txns {
		key, err := s.key(txn.Object)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d := delta.Delta[item]{Type: delta.Updated, Object: newItem(key, txn.Object), Quiet: true}
		if txn.Type == cache.TransactionTypeDelete {
			d.Type = delta.Deleted
		}
		deltas = append(deltas, d)
		successful = append(successful, i)
	}
	if len(deltas) > 0 {
		s.apply(deltas...)
	}
	if len(errs) > 0 {
		return &cache.TransactionError{SuccessfulIndices: successful, TotalTransactions: len(txns), Errors: errs}
	}
	return nil
}

// Bookmark sets the version of the store without a change of objects.
func (s *store) Bookmark(resourceVersion string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyLocked(delta.Delta[item]{Type: delta.Bookmark, List: &delta.List[item]{ResourceVersion: resourceVersion}, Quiet: true})
}

// LastStoreSyncResourceVersion returns the version of the last object, list or
// bookmark that was applied.
func (s *store) LastStoreSyncResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Resync does nothing, as in client-go.
func (s *store) Resync() error { return nil }

// List returns all objects, ordered by key.
func (s *store) List() []any {
	view := s.ix.Pin()
	defer view.Release()
	return appendObjects(make([]any, 0, view.Len()), view.Windows("", ""))
}

// ListKeys returns all keys, in order.
func (s *store) ListKeys() []string {
	view := s.ix.Pin()
	defer view.Release()
	out := make([]string, 0, view.Len())
	for key := range view.All() {
		out = append(out, key)
	}
	return out
}

// Get returns the object with the key of obj.
func (s *store) Get(obj any) (any, bool, error) {
	key, err := s.key(obj)
	if err != nil {
		return nil, false, err
	}
	return s.GetByKey(key)
}

// GetByKey returns the object with this key.
func (s *store) GetByKey(key string) (any, bool, error) {
	i, ok := s.ix.Get(key)
	return i.obj(), ok, nil
}

var errConflict = errors.New("indexer conflict")

func errNoIndex(name string) error { return fmt.Errorf("Index with name %s does not exist", name) } //nolint:staticcheck // client-go's wording
