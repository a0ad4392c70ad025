// Package cluster says how to reach one Kubernetes cluster and what it serves.
//
// A [Cluster] joins a connection (an HTTP client made from a rest.Config, with
// no client-side rate limit) to the cluster's discovery: it turns what a person
// types ("deploy", "Deployment", "deployments.v1.apps") into a [Resource], and
// lists the resources that can be mirrored. Discovery is fetched when first
// needed, kept, and fetched again when something asked for is not in it, so a
// custom resource that was defined a moment ago is found.
//
// [FromKubeconfig] and [Contexts] read kubeconfig files the way kubectl does,
// with errors that say what to do. [Watch] follows kubeconfig files that change
// on disk and delivers the clusters they describe.
package cluster
