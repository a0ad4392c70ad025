// Package audit writes an audit log: one line of JSON for each event, in the form of
// audit.k8s.io/v1 Events, to a file that it rotates or to a collector.
//
// Events wait in a queue with a limit. If it is full, requests wait for the disk, for a
// second at most; then events are dropped, counted and reported. Events of strangers,
// whose requests were refused, are folded if there are many.
package audit
