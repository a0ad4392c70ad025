package clientgo

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/indexer"
)

// AddIndexers adds indexes and fills them from the objects in the store. If one
// of the names is taken, it returns an error and adds none.
func (s *store) AddIndexers(indexers cache.Indexers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var taken []string
	for name := range indexers {
		if _, ok := s.indexers[name]; ok {
			taken = append(taken, name)
		}
	}
	if len(taken) > 0 {
		slices.Sort(taken)
		return fmt.Errorf("%w: %v", errConflict, taken)
	}
	for name, values := range indexers {
		if err := s.ix.AddIndex(name, indexFunc(name, values)); err != nil {
			return err
		}
		s.indexers[name] = values
	}
	return nil
}

var metaNamespaceIndexFunc = reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()

// indexFunc converts an index function of client-go's to one of the engine's.
func indexFunc(name string, values cache.IndexFunc) indexer.IndexFunc[item] {
	byNamespace := reflect.ValueOf(values).Pointer() == metaNamespaceIndexFunc
	return func(out []string, i item) []string {
		// Nearly every informer has this index, and client-go's function
		// allocates a slice on each call.
		if o, ok := i.held.(metav1.Object); ok && byNamespace {
			return append(out, o.GetNamespace())
		}
		found, err := values(i.obj())
		if err != nil {
			panic(fmt.Errorf("unable to calculate an index entry for key %q on index %q: %w", i.key(), name, err))
		}
		return append(out, found...)
	}
}

// GetIndexers returns the index functions by name.
func (s *store) GetIndexers() cache.Indexers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.indexers)
}

// Index returns the objects that share a value of the index with obj.
func (s *store) Index(name string, obj any) ([]any, error) {
	s.mu.Lock()
	values := s.indexers[name]
	s.mu.Unlock()
	if values == nil {
		return nil, errNoIndex(name)
	}
	wanted, err := values(obj)
	if err != nil {
		return nil, err
	}
	view := s.ix.Pin()
	defer view.Release()
	n := 0
	for _, value := range wanted {
		n += view.IndexedCount(name, value, math.MaxInt)
	}
	out := make([]any, 0, n)
	var seen map[string]bool
	for _, value := range wanted {
		for key, i := range view.Indexed(name, value, "", "") {
			if len(wanted) > 1 {
				if seen[key] {
					continue
				}
				if seen == nil {
					seen = map[string]bool{}
				}
				seen[key] = true
			}
			out = append(out, i.obj())
		}
	}
	return out, nil
}

// ByIndex returns the objects that have value in the index.
func (s *store) ByIndex(name, value string) ([]any, error) {
	view := s.ix.Pin()
	defer view.Release()
	if !view.HasIndex(name) {
		return nil, errNoIndex(name)
	}
	out := make([]any, 0, view.IndexedCount(name, value, math.MaxInt))
	return appendObjects(out, view.IndexedWindows(name, value, "", "")), nil
}

// IndexKeys returns the keys of the objects that have value in the index, in
// order.
func (s *store) IndexKeys(name, value string) ([]string, error) {
	view := s.ix.Pin()
	defer view.Release()
	if !view.HasIndex(name) {
		return nil, errNoIndex(name)
	}
	out := []string{}
	for key := range view.Indexed(name, value, "", "") {
		out = append(out, key)
	}
	return out, nil
}

// ListIndexFuncValues returns the values in the index.
func (s *store) ListIndexFuncValues(name string) []string {
	view := s.ix.Pin()
	defer view.Release()
	return slices.AppendSeq([]string{}, view.IndexValues(name))
}
