// Package soak runs a living cluster with faults for as long as it is told, and
// checks all the while that a mirror of it tells the truth.
//
// The truth is what etcd has stored: every change of every key, read from etcd
// itself and not by way of an API server. An object's resourceVersion is the
// revision of its key, so etcd says which objects there were, each in which
// version, at every resourceVersion there has been. Three kinds of readers are
// held against it:
//
//   - lists of the mirror, which say themselves of which resourceVersion they are;
//   - replays: what a subscriber makes of the events it was told, with handlers and
//     loops of the library, server-sent events, watches of the Kubernetes API and
//     unmodified client-go informers, fast and slow, resumed and not;
//   - bodies: a list at one resourceVersion is the API server's own, to the byte.
package soak
