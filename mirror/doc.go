// Package mirror keeps informers of many resources of many clusters, and starts them
// when they are first asked for.
//
// A [Mirror] is given its clusters by [Mirror.Set] or [Mirror.Follow], which may be
// called again at any time: clusters about which nothing changed keep their
// informers, others are replaced or emptied. A [Cluster] says which resources it has,
// and returns the [Informer] of one once that has its first list, or why there is
// none. What is read of informers, and how fresh it is, is the business of
// [github.com/tidings-io/tidings/read].
//
// Every error that a caller can do something about is an [*Error].
package mirror
