package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/informerapi"
	"github.com/tidings-io/tidings/internal/object"
)

func init() {
	informerapi.Open = func(inf any) any { return inf.(interface{ internals() any }).internals() }
}

func (inf *Informer[T]) internals() any { return internals[T]{inf} }

// internals implements [informerapi.Informer].
type internals[T Object] struct{ inf *Informer[T] }

var _ informerapi.Informer[*codec.Raw, *View[*codec.Raw]] = internals[*codec.Raw]{}

func (i internals[T]) Latest() (resourceVersion string, objects int) {
	latest := i.inf.store.Latest()
	return formatVersion(latest.ResourceVersion), latest.Len()
}

func (i internals[T]) Generation(v *View[T]) uint64 { return v.pinned.Generation }

func (i internals[T]) ViewBefore(resourceVersion string) (*View[T], map[string]T, error) {
	version, err := parseVersion(resourceVersion)
	if err != nil {
		return nil, nil, err
	}
	store := &i.inf.store
	v, events, ok := store.PinSince(version)
	if !ok {
		return nil, nil, fmt.Errorf("%s: the state at %s: %w", i.inf.target(), resourceVersion, ErrExpired)
	}
	before := make(map[string]T, len(events))
	for j := range events {
		key := Key(events[j].Object)
		if _, earlier := before[key]; !earlier {
			before[key] = store.expand(events[j].Old) // nil if it was added
		}
	}
	return &View[T]{v, store}, before, nil
}

func (i internals[T]) Confirm(v *View[T], resourceVersion string) bool {
	version := object.Version(resourceVersion)
	return version != 0 && i.inf.store.Confirm(v.pinned, version)
}

func (i internals[T]) IndexLabels(selector labels.Selector, found bool) {
	i.inf.indexLabels(selector, found)
}

func (i internals[T]) Progress() informerapi.Progress {
	p := informerapi.Progress{Retained: i.inf.store.Stats().Retained}
	i.inf.mu.Lock()
	defer i.inf.mu.Unlock()
	for l := range i.inf.loops {
		s := l.status()
		p.Readers = append(p.Readers, informerapi.Reader{Lag: s.Lag, Since: s.Since, Folded: s.Folded})
	}
	return p
}

func (i internals[T]) Retry() {
	i.inf.mu.Lock()
	r := i.inf.run
	i.inf.mu.Unlock()
	if r == nil {
		return
	}
	for _, one := range r.reflectors {
		one.Retry()
	}
}
