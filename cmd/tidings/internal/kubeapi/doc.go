// Package kubeapi serves get, list and watch of the Kubernetes API from a mirror, for
// unmodified clients.
//
// The semantics are those of kube-apiserver, see
// https://kubernetes.io/docs/reference/using-api/api-concepts/, and the bodies are meant
// to be the same to the byte. resourceVersions are the cluster's own, and continue
// tokens have kube-apiserver's form. Work is shared: a list is built from the encodings
// of its objects and compressed once for all requests until one of its objects changes,
// and a change is encoded once for all watches. [Options] bound the memory of these
// caches.
//
// The package does not authorize requests. They must have been authorized before they
// reach a [Handler].
package kubeapi
