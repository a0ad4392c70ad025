// Package demo is a company's Kubernetes cluster, simulated in memory: a
// [fakeapi.Cluster] with a workload that changes.
//
// A shop, its payments, data stores, monitoring and CI run on a few nodes.
// People roll out versions, some of them broken, scale up and down, open preview
// environments and change configuration. Pods crash and recover, nodes come and
// go, jobs complete. The usual controllers run, too, so changes that clients make
// through the API have their consequences: a deleted pod terminates and is
// replaced, a new Deployment gets its pods.
//
// The same seed makes the same cluster and, as long as no client writes to it,
// the same changes, second by second.
package demo
