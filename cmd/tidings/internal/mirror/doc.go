// Package mirror runs the informers of many resources in many clusters. It starts an
// informer when its resource is first read.
//
// [Mirror.Set] and [Mirror.Follow] give a [Mirror] its clusters, and may be called
// again at any time: clusters whose configuration has not changed keep their
// informers, others are replaced or emptied. A [Cluster] lists its resources, and
// returns the [Informer] of a resource once that has its first list, or an error that
// says why there is none. It checks the connection to its API server all the time, so
// that [Mirror.Status] tells whether what it has is fresh. Package
// [github.com/tidings-io/tidings/cmd/tidings/internal/read] reads from the informers
// and decides how fresh an answer must be.
//
// Every error that a caller can act on is an [*Error].
package mirror
