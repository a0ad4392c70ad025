// Package passthrough forwards requests that a mirror cannot answer to the cluster:
// writes, logs, exec, attach, port-forward, subresources, and metrics and other
// aggregated APIs.
//
// Requests are sent with the caller's own credentials, never with the mirror's: the
// transports to the cluster have no credentials at all. The cluster authorizes the caller,
// and its audit log names the caller. A caller without credentials that can be forwarded
// is refused. That includes callers with a client certificate, because only they have its
// key.
package passthrough
