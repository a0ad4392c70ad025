// Package kubeapi answers the Kubernetes API's reads, get, list and watch, from
// a [github.com/tidings-io/tidings/mirror.Mirror], so that unmodified clients
// cannot tell.
//
// Semantics are those of kube-apiserver, and
// https://kubernetes.io/docs/reference/using-api/api-concepts/ describes them;
// bodies are meant to be the same to the byte. resourceVersions are the
// cluster's own, continue tokens are of kube-apiserver's form. What is the same
// for many readers is made once: a list is put together from the encodings of its
// objects, and compressed, for all who ask for it while nothing in it changes; a
// change is encoded once for all who watch it. [Options] bound what is kept.
//
// The package knows nothing of rights: whoever calls a [Handler] has seen to
// it that the caller may read what the request is for.
package kubeapi
