// Package clientgo is client-go's package tools/cache on the engine of Tidings.
// It exports every name of that package: import it as cache, and change nothing
// else.
//
//	import cache "github.com/tidings-io/tidings/informer/clientgo"
//
// The constructors of informers, controllers and stores are implemented here.
// Types, interfaces and helpers are aliases of client-go's, so the results can be
// used wherever client-go's can. [NewSharedIndexInformer] fits controller-runtime's
// cache.Options.NewInformer. The subpackages have factories for the typed, dynamic
// and metadata clients, under client-go's package names.
//
// The package keeps client-go's promises about objects, order, tombstones,
// resyncs, versions and requests. docs/migrating.md lists the differences. In
// short: readers take no locks, a handler needs no buffers, and a WatchList
// stream whose initial events never end is replaced by a list.
package clientgo

//go:generate go run ./internal/aliases
