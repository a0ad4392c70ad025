// Package fakeapi is a Kubernetes API server in memory, for tests and for the
// demo cluster.
//
// A [Cluster] is an [net/http.Handler]. It serves discovery, get, list with
// paging and selectors, watch with bookmarks and streamed initial lists, create,
// update, patch and delete, in JSON, YAML and protobuf, in full or as metadata
// only. In these parts of the protocol clients cannot tell it from a
// kube-apiserver. [Serve] puts it on a loopback port. [InProcess] puts it behind
// a transport that opens no socket and so works in a testing/synctest bubble,
// too.
//
// Tests can make it fail: see [Cluster.Inject], [Cluster.CloseWatches],
// [Cluster.Compact] and [Cluster.SetDown].
//
// # Guarantees
//
// Every write gets the next number of one cluster-wide revision counter as its
// resourceVersion, as in etcd. A list is the exact state at the
// resourceVersion it reports, and a watch from there delivers every later
// change of the resource exactly once and in order of revision. All methods
// may be called from any goroutine.
//
// # Limits
//
// Objects are neither defaulted nor validated beyond their names. There is no
// admission, no server-side apply and no Table output (clients fall back to
// plain objects). Nothing is kept when the process ends.
package fakeapi
