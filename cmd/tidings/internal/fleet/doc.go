// Package fleet carries the mirrors of clusters over NATS JetStream: a [Publisher] puts
// what a mirror has on streams, and a [Follower] offers the clusters found there to
// another mirror, whose API server is then the stream.
//
// # What is on the streams
//
// Each cluster has two streams. The log has the changes, the snapshots stream has states to
// begin with. Both are in the Kubernetes API's own form, compressed with zstd: a message of
// changes is a part of the answer to a watch, a snapshot is the answer to a list. So a
// follower is an http.RoundTripper, and everything above it is what it is at an API server.
//
//	tidings.log.CLUSTER.epoch                            a writer begins
//	tidings.log.CLUSTER.changes.GROUP.VERSION.RESOURCE.SCOPE   events of a watch, one a line
//	tidings.log.CLUSTER.snapshot.GROUP.VERSION.RESOURCE.SCOPE  a snapshot is about to be made
//	tidings.log.CLUSTER.beat                             nothing else has happened; the writer's health
//	tidings.log.CLUSTER.end                              the writer stops
//	tidings.snapshots.CLUSTER.GROUP.VERSION.RESOURCE.SCOPE.{a,b}.N   piece N of a snapshot
//	tidings.snapshots.CLUSTER.GROUP.VERSION.RESOURCE.SCOPE.head      what the newest is
//	tidings.ask.CLUSTER                                  questions to the cluster's publisher
//
// The header Nats-Msg-Id of each message of the log is EPOCH-NUMBER. The number goes up by
// one from message to message, whatever they are about. An epoch is the time of one writer: it begins with number
// 1, and nothing that was read before can be continued in it.
//
// # What is trusted
//
// JetStream may lose acknowledged messages, and a store may be restored from a backup. So a
// follower believes epochs and numbers only. After a gap, a repetition or a new epoch it begins
// again with a snapshot that was made afterwards. If there is none, it says so and
// asks the publisher for one. A new epoch may be an old one of a restored copy, so the publisher has to confirm it.
//
// A cluster has one writer. What excludes a second one is the sequence that each message expects the stream
// to end at, and if one server keeps the stream, the id of the message there: a writer that was replaced, or whose
// messages were lost, cannot continue its epoch. A publisher
// that finds the log growing waits, and takes over when it does not grow any more.
package fleet
