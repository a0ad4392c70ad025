// Package access authenticates the callers of a mirror and authorizes their reads by
// asking the cluster that is mirrored.
//
// A [Reviewer] speaks for one cluster. It authenticates a request by a bearer token,
// with a TokenReview, or by a client certificate, against the cluster's authorities
// (the client-ca-file of the config map
// kube-system/extension-apiserver-authentication). It authorizes a request with a
// SubjectAccessReview for verb, group, resource, subresource, namespace and name, as
// the API server asks its own authorizers. The package has no rules of its own.
//
// # Guarantees
//
// A request that cannot be reviewed is refused: the error is a 503 if the cluster does
// not answer. A positive result is valid for [Options.AllowTTL], counted from when the
// review was sent. It is valid for [Options.Grace] more only while the cluster is
// unavailable and has not given a negative answer. Results are never mixed up: caches
// and reviews in flight are keyed by a digest of everything the result depends on.
// Caches are bounded, and hold digests of tokens instead of tokens.
//
// A request that stays open is reviewed again whenever a result that it depends on has
// expired; see [Reviewer.Reauthorize].
//
// All methods are safe for concurrent use.
package access
