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

// store is a cache.Indexer and a cache.TransactionStore over the engine's
// indexer. Readers do not delay writers.
type store struct {
	ix    *indexer.Indexer[item]
	keyOf cache.KeyFunc
	// shadow, if not nil, is client-go's own store with the options the caller
	// gave. Those are functions on a type of client-go's that nobody else can
	// make, so whatever is written goes through it and comes out transformed and
	// counted. It holds one object at most.
	shadow cache.Store

	mu       sync.Mutex // held by whoever writes
	version  string
	indexers cache.Indexers
}

var (
	_ cache.Indexer          = &store{}
	_ cache.TransactionStore = &store{}
)

// NewStore returns a store of objects under the keys that keyFunc makes, as
// cache.NewStore does (client-go's store.go). It is safe for concurrent use.
// Get and GetByKey never wait; lists wait for a write that is under way, and
// none waits for a list.
func NewStore(keyFunc cache.KeyFunc, opts ...cache.StoreOption) cache.Store {
	return newStore(keyFunc, nil, opts)
}

// NewIndexer is [NewStore] with indexes, as cache.NewIndexer is. An index
// function that returns an error panics in whoever writes, as it does there.
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
		panic(err) // cannot be: there is none yet
	}
	return s
}

// key makes the key of an object, or a cache.KeyError.
func (s *store) key(obj any) (string, error) {
	key, err := s.keyOf(obj)
	if err != nil {
		return "", cache.KeyError{Obj: obj, Err: err}
	}
	return key, nil
}

// take has the options of the store look at an object, under the lock.
func (s *store) take(obj any) (any, error) {
	if s.shadow == nil {
		return obj, nil
	}
	if err := s.shadow.Add(obj); err != nil {
		return nil, err
	}
	obj, _, err := s.shadow.GetByKey("")
	return obj, err
}

// apply writes deltas and notes the version they lead to. The version follows
// the objects, so that whoever reads it finds at least what it promises.
func (s *store) apply(deltas ...delta.Delta[item]) {
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

// versionOf is the version that a delta leads to, if it has one.
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

// sameVersion says that an update brought the version that was held.
func sameVersion(old, new item) bool {
	was, err := meta.Accessor(old.obj())
	if err != nil {
		return false
	}
	is, err := meta.Accessor(new.obj())
	return err == nil && was.GetResourceVersion() == is.GetResourceVersion()
}

// follow applies what the source of an informer says.
func (s *store) follow(deltas []delta.Delta[item]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(deltas...)
}

// Add puts obj into the store, in place of what is there under its key.
// Handlers of the informer that the store belongs to are not told.
func (s *store) Add(obj any) error { return s.set(obj) }

// Update does what Add does.
func (s *store) Update(obj any) error { return s.set(obj) }

func (s *store) set(obj any) error {
	key, err := s.key(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj, err = s.take(obj); err != nil {
		return err
	}
	s.apply(delta.Delta[item]{Type: delta.Updated, Object: itemOf(key, obj), Quiet: true})
	return nil
}

// Delete takes out what is under the key of obj, if anything is.
func (s *store) Delete(obj any) error {
	key, err := s.key(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(delta.Delta[item]{Type: delta.Deleted, Object: itemOf(key, obj), Quiet: true})
	return nil
}

// Replace makes the store hold the objects of list and no others. Readers see
// either everything before or everything after.
func (s *store) Replace(list []any, resourceVersion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]item, 0, len(list))
	for _, obj := range list {
		key, err := s.key(obj)
		if err != nil {
			return err
		}
		if obj, err = s.take(obj); err != nil {
			return err
		}
		items = append(items, itemOf(key, obj))
	}
	s.apply(delta.Delta[item]{Type: delta.Replaced, List: &delta.List[item]{Items: items, ResourceVersion: resourceVersion}, Quiet: true})
	return nil
}

// Transaction writes everything at once: readers see none of it or all. What
// has no key is left out and named by the error.
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
		d := delta.Delta[item]{Type: delta.Updated, Object: itemOf(key, txn.Object), Quiet: true}
		if txn.Type == cache.TransactionTypeDelete {
			d.Type = delta.Deleted
		}
		deltas = append(deltas, d)
		successful = append(successful, i)
	}
	if len(deltas) > 0 {
		s.follow(deltas)
	}
	if len(errs) > 0 {
		return &cache.TransactionError{SuccessfulIndices: successful, TotalTransactions: len(txns), Errors: errs}
	}
	return nil
}

// Bookmark notes that nothing happened up to a version.
func (s *store) Bookmark(resourceVersion string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(delta.Delta[item]{Type: delta.Bookmark, List: &delta.List[item]{ResourceVersion: resourceVersion}, Quiet: true})
}

// LastStoreSyncResourceVersion is the version of the last object, list or
// bookmark the store has taken in.
func (s *store) LastStoreSyncResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Resync does nothing, as in client-go.
func (s *store) Resync() error { return nil }

// List returns every object, in the order of the keys.
func (s *store) List() []any {
	view := s.ix.Pin()
	defer view.Release()
	return objects(view.Append(make([]item, 0, view.Len()), "", ""))
}

// ListKeys returns every key, in order.
func (s *store) ListKeys() []string {
	view := s.ix.Pin()
	defer view.Release()
	out := make([]string, 0, view.Len())
	for key := range view.All() {
		out = append(out, key)
	}
	return out
}

// Get returns what is under the key of obj.
func (s *store) Get(obj any) (any, bool, error) {
	key, err := s.key(obj)
	if err != nil {
		return nil, false, err
	}
	return s.GetByKey(key)
}

// GetByKey returns what is under key.
func (s *store) GetByKey(key string) (any, bool, error) {
	i, ok := s.ix.Get(key)
	return i.obj(), ok, nil
}

var errConflict = errors.New("indexer conflict")

func errNoIndex(name string) error { return fmt.Errorf("Index with name %s does not exist", name) } //nolint:staticcheck // the words of client-go
