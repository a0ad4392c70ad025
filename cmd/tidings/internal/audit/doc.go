// Package audit writes an audit log: one line of JSON for each event, in the form of
// audit.k8s.io/v1 Events, to a file that it rotates or to a collector.
//
// Nothing waits for the disk. Events wait in a queue with a limit; events that do not
// fit are dropped, counted and reported. Events of strangers, whose requests were
// refused, are folded if there are many.
package audit
