// Package passthrough hands requests that a mirror cannot answer to the cluster
// itself: writes, logs, exec, attach, port-forward, metrics and other APIs that
// an API server aggregates, subresources.
//
// They are made with the caller's own credentials and never with the mirror's:
// the connections to the cluster that are used for them know no credentials at
// all. So it is the cluster that decides whether a caller may, and its audit log
// says who did. A caller without credentials that can be handed on is refused;
// that includes callers who have shown a client certificate, because nobody but
// them has its key.
package passthrough
