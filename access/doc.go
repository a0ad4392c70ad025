// Package access decides who may read what a mirror holds, by asking the
// cluster it came from.
//
// A [Reviewer] speaks for one cluster. It finds out who makes a request: the
// cluster's TokenReview vouches for bearer tokens, and the cluster's authority
// for client certificates (the client-ca-file of the config map
// kube-system/extension-apiserver-authentication). It asks whether that caller
// may do what the request does with a SubjectAccessReview for verb, group,
// resource, subresource, namespace and name, as the API server asks its own
// authorisers. It knows no rules itself, so there are none for it to get wrong.
//
// # What is promised
//
// What cannot be asked is refused: with 503 where the cluster does not answer,
// never with a yes. A yes holds for [Options.Allow] at most from the moment the
// question was sent, and for [Options.Grace] more only while the cluster cannot
// be asked and has not said no. A caller never gets an answer to another's question:
// caches and questions under way are keyed by a digest of everything the answer
// depends on. Caches are bounded, and hold digests of tokens, not tokens.
//
// A request that stays open is asked about again whenever an answer it rests on
// has run out; see [Reviewer.Hold].
//
// All methods may be called from any number of goroutines.
package access
