package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/tidings-io/tidings/cluster"
)

// Factory shares the informers of one cluster: each resource and scope is
// mirrored once. Get informers from it with [For].
type Factory struct {
	opts []Option

	mu        sync.Mutex
	cluster   *cluster.Cluster
	informers map[informerKey]Managed
	order     []informerKey
}

// Managed is the part of [Informer] that does not depend on the type of its
// objects.
type Managed interface {
	Start(context.Context) error
	Stop(context.Context) error
	Empty(context.Context) error
	WaitForSync(context.Context) error
	SetCluster(context.Context, *cluster.Cluster) error
	Status() Status
}

// informerKey identifies an informer in a factory: calls with the same key share
// it.
type informerKey struct {
	object                                           reflect.Type
	resource, kind, namespaces, labels, fields, from string
	managedFields, unshared, compact, detect         bool
	unique                                           int // not 0 if the informer is not shared
}

// NewFactory returns a factory. All its informers have opts.
func NewFactory(c *cluster.Cluster, opts ...Option) *Factory {
	return &Factory{cluster: c, opts: opts, informers: map[informerKey]Managed{}}
}

// For returns the factory's informer of T with opts in addition to the factory's
// own, and creates it if there is none. It does not start it. Calls share an
// informer if they have the same T, resource, namespaces, selectors and kind of
// store, and neither a [Filter] nor a [Transform], because functions cannot be
// compared.
func For[T Object](f *Factory, opts ...Option) (*Informer[T], error) {
	all := slices.Concat(f.opts, opts)
	o, err := newOptions(all)
	if err != nil {
		return nil, err
	}
	key := informerKey{reflect.TypeFor[T](), o.resource, o.kind, strings.Join(o.namespaces, ","), o.labels, o.fields, o.from, o.codec.KeepManagedFields, o.unshared, o.compact, o.detect, 0}
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.filter != nil || o.transform != nil {
		key.unique = len(f.order) + 1
	}
	if have, ok := f.informers[key]; ok {
		return have.(*Informer[T]), nil
	}
	inf, err := New[T](f.cluster, all...)
	if err != nil {
		return nil, err
	}
	f.informers[key] = inf
	f.order = append(f.order, key)
	return inf, nil
}

// Start starts the informers that do not run yet, concurrently, and waits until
// each has its first list. ctx bounds only that wait: the informers run until they
// are stopped. The error joins those of the informers that were refused or did
// not sync in time. Those do not run; the others do.
func (f *Factory) Start(ctx context.Context) error {
	return f.each(func(inf Managed) error {
		err := inf.Start(ctx)
		if errors.Is(err, ErrStarted) {
			return inf.WaitForSync(ctx)
		}
		return err
	})
}

// WaitForSync waits until every informer has a complete list.
func (f *Factory) WaitForSync(ctx context.Context) error {
	return f.each(func(inf Managed) error { return inf.WaitForSync(ctx) })
}

// Stop stops every informer, see [Informer.Stop]. They can be started again.
func (f *Factory) Stop(ctx context.Context) error {
	return f.each(func(inf Managed) error { return inf.Stop(ctx) })
}

// Empty stops every informer and empties its store, see [Informer.Empty].
func (f *Factory) Empty(ctx context.Context) error {
	return f.each(func(inf Managed) error { return inf.Empty(ctx) })
}

// SetCluster stops and empties every informer and connects it to another cluster,
// or to the same one with another kubeconfig, see [Informer.SetCluster]. Informers
// created later use that cluster, too.
func (f *Factory) SetCluster(ctx context.Context, c *cluster.Cluster) error {
	err := f.each(func(inf Managed) error { return inf.SetCluster(ctx, c) })
	if err == nil {
		f.mu.Lock()
		f.cluster = c
		f.mu.Unlock()
	}
	return err
}

// Informers returns the informers in the order of their creation.
func (f *Factory) Informers() []Managed {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Managed
	for _, key := range f.order {
		all = append(all, f.informers[key])
	}
	return all
}

// each calls do for all informers concurrently and joins the errors.
func (f *Factory) each(do func(Managed) error) error {
	informers := f.Informers()
	f.mu.Lock()
	name := f.cluster.Name()
	f.mu.Unlock()
	errs := make([]error, len(informers))
	var wg sync.WaitGroup
	for i, inf := range informers {
		wg.Go(func() { errs[i] = do(inf) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("informers of cluster %s: %w", name, err)
	}
	return nil
}
