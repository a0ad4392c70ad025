// Package soak runs a changing cluster with faults for a given time, and checks during
// the whole run that a mirror of it is correct.
//
// The truth is what etcd has stored: every change of every key, read from etcd itself
// and not from an API server. An object's resourceVersion is the revision of its key,
// so the objects at every resourceVersion, and their versions, are known. Compared with
// it are
//
//   - lists of the mirror, at their resourceVersion;
//   - replays: the state after the events of a subscriber, for handlers and loops of
//     the library, server-sent events, watches of the Kubernetes API and unmodified
//     client-go informers, fast and slow, resumed and not;
//   - bodies: a list at one resourceVersion equals the API server's, byte for byte.
package soak
