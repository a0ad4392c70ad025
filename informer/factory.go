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

// Factory shares informers of one cluster among those who need them: each
// resource and scope is mirrored once. Get informers from it with [For].
type Factory struct {
	opts []Option

	mu        sync.Mutex
	cluster   *cluster.Cluster
	informers map[sharing]Managed
	order     []sharing
}

// Managed is what every informer can do, whatever it keeps.
type Managed interface {
	Start(context.Context) error
	Stop(context.Context) error
	Empty(context.Context) error
	WaitForSync(context.Context) error
	SetCluster(context.Context, *cluster.Cluster) error
	Status() Status
}

// sharing is what two askers must have in common to share an informer.
type sharing struct {
	kept                                       reflect.Type
	resource, namespaces, labels, fields, from string
	managedFields, unshared, compact, detect   bool
	own                                        int // not 0 for one that is not shared
}

// NewFactory returns a factory whose informers all have opts.
func NewFactory(c *cluster.Cluster, opts ...Option) *Factory {
	return &Factory{cluster: c, opts: opts, informers: map[sharing]Managed{}}
}

// For returns the factory's informer of T with these options beside the
// factory's own, making it if nobody has asked for it before. It is not started.
// Askers share an informer if they ask for the same T, resource, namespaces,
// selectors and kind of store, and neither a [Filter] nor a [Transform], which cannot be compared.
func For[T Object](f *Factory, opts ...Option) (*Informer[T], error) {
	all := slices.Concat(f.opts, opts)
	o, err := newOptions(all)
	if err != nil {
		return nil, err
	}
	key := sharing{reflect.TypeFor[T](), o.resource, strings.Join(o.namespaces, ","), o.labels, o.fields, o.from, o.codec.KeepManagedFields, o.unshared, o.compact, o.detect, 0}
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.filter != nil || o.transform != nil {
		key.own = len(f.order) + 1
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

// Start starts the informers that do not run yet, all at once, and waits until
// each has its first list. ctx bounds that wait only; they run until they are
// stopped. The error joins those of the informers that were refused or did not
// sync in time, which do not run; the others do.
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

// SetCluster stops and empties every informer and makes it one of another
// cluster, or of the same one reached by another kubeconfig, see
// [Informer.SetCluster]. Informers that are asked for later are of that cluster,
// too.
func (f *Factory) SetCluster(ctx context.Context, c *cluster.Cluster) error {
	err := f.each(func(inf Managed) error { return inf.SetCluster(ctx, c) })
	if err == nil {
		f.mu.Lock()
		f.cluster = c
		f.mu.Unlock()
	}
	return err
}

// Informers returns the informers in the order in which they were asked for.
func (f *Factory) Informers() []Managed {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Managed
	for _, key := range f.order {
		all = append(all, f.informers[key])
	}
	return all
}

// each calls do for every informer at once and joins the errors.
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
