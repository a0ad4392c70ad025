// Package clientgo is client-go's package tools/cache on the engine of Tidings.
// It has every name of that package: import it as cache and nothing else has to
// change.
//
//	import cache "github.com/tidings-io/tidings/informer/clientgo"
//
// The constructors of informers, controllers and stores are its own; types,
// interfaces and helpers are client-go's, so what they return goes wherever
// client-go's does. [NewSharedIndexInformer] is what controller-runtime's
// cache.Options.NewInformer takes. Factories for the typed, the dynamic and the
// metadata client are in the packages beneath, which are named like client-go's.
//
// What client-go promises is kept: objects, order, tombstones, resyncs, versions
// and requests. What differs is said at [NewSharedIndexInformerWithOptions] and
// in docs/migrating.md; in short, readers take no locks, a handler costs no
// buffers, and a server that does not end its initial events is listed.
package clientgo

//go:generate go run ./internal/aliases
