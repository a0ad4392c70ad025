// Package demo is a Kubernetes cluster without Kubernetes: an in-memory
// object store behind the Kubernetes API protocol, and a workload generator
// that makes the objects in it live.
//
// A [Cluster] is an [net/http.Handler]. Clients cannot tell its protocol from
// a kube-apiserver's in the parts it speaks: discovery, get, list with paging
// and selectors, watch with bookmarks and streamed initial lists, create,
// update, patch and delete, in JSON, YAML and protobuf, in full or as metadata
// only. [Serve] puts it on a loopback port, [InProcess] behind a transport that
// opens no socket and therefore also works inside a testing/synctest bubble.
//
// It is made for two uses. With [Options.Workload] it is a living cluster to
// look at: Deployments roll out, Pods fail and recover, Jobs complete. Without
// it, it is a quiet, deterministic API server for tests, which can be told to
// misbehave; see [Cluster.Inject], [Cluster.CloseWatches], [Cluster.Compact]
// and [Cluster.SetDown].
//
// # Guarantees
//
// Every write gets the next number of one cluster-wide revision counter as its
// resourceVersion, as in etcd. A list is the exact state at the
// resourceVersion it reports, and a watch from there delivers every later
// change of the resource exactly once and in order of revision. All methods
// may be called from any goroutine.
//
// # What it is not
//
// Objects are neither defaulted nor validated beyond their names, there is no
// admission, no server-side apply and no Table output (clients fall back to
// plain objects), and nothing is kept when the process ends.
package demo
