// Package cluster connects to Kubernetes clusters and discovers what they serve.
//
// A [Cluster] is a connection (an HTTP client made from a rest.Config, without a
// client-side rate limit) together with the cluster's discovery. It resolves names
// as typed by users ("deploy", "Deployment", "deployments.v1.apps") to a
// [Resource], and lists the resources that can be mirrored. Discovery is fetched
// when first needed, cached, and fetched again when a resource is not found in
// it. A custom resource that has just been created is therefore found.
//
// [FromKubeconfig] and [Contexts] read kubeconfig files like kubectl, with errors
// that say what to do. [Watch] follows kubeconfig files that change on disk and
// yields the clusters they describe.
package cluster
