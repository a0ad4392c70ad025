// Package informer keeps a live, local, indexed mirror of Kubernetes resources
// and delivers their changes. It lists and watches a resource once and shares the
// result among all readers, handlers and loops of the program.
//
//	conn, err := cluster.FromKubeconfig("", "")           // or cluster.New(name, restConfig)
//	pods, err := informer.New[*corev1.Pod](conn, informer.InNamespace("shop"))
//	pods.AddHandler(informer.Handlers[*corev1.Pod]{Add: …, Update: …, Delete: …})
//	err = pods.Start(ctx)                                 // waits for the first list
//	defer pods.Stop(ctx)
//	pod, ok := pods.Get("shop", "web-0")                  // from memory
//
// The module is added by go get github.com/tidings-io/tidings@latest. Complete
// programs are in the folder examples of the repository.
//
// # Objects
//
// The type parameter decides what the informer keeps of each object: *corev1.Pod
// or the Go type of another kind, *unstructured.Unstructured for any resource, or
// *metav1.PartialObjectMetadata for metadata only, in which case the server sends
// nothing else. Objects have their kind and apiVersion set. managedFields are
// dropped unless [KeepManagedFields] is given. [NewFromSource] creates an informer
// of objects that do not come from an API server.
//
// With [Compact] the store keeps compressed encodings and decodes objects when
// they are read. That is slower, and takes a tenth of the memory.
//
// # Events
//
// Handlers ([Informer.AddHandler]) and loops ([Informer.Events]) are subscribers.
// A subscriber receives every object in the store as an [Added] event with
// InInitialList set, then [Synced], then every change, once and in order. The
// store is updated before an event is delivered: what a subscriber reads there is
// the state after the event, or a newer one. Each subscriber has its own pace and
// delays no other. Events that it has not received yet wait in a log that all
// subscribers share.
//
// When a watch breaks, the informer resumes it at the last resourceVersion, and
// misses nothing. When the server no longer has that version (410 Gone), the
// informer lists again and delivers the difference: first deletions, with
// Tombstone set, because the last state may not have been seen, then additions and
// updates. An object that was deleted and created again meanwhile has a new uid.
// It is delivered as Deleted and Added, never as Updated.
//
// # Waiting and errors
//
// [Informer.Start] returns when the informer has a complete list. If the server
// refuses it, because a permission is missing or the resource does not exist, the
// error is a [*RefusedError] that says what would help. Network failures are
// retried, with exponential backoff between 0.8 and 60 seconds, until ctx ends.
// After the first list, refusals are retried in the same way. [Informer.Status]
// shows them, and [Informer.StatusChanged] wakes callers that wait for a change.
// To read your own writes, use [Informer.WaitFor].
//
// # Stopping and starting again
//
// [Informer.Stop] leaves no goroutine behind. The store stays readable, and the
// next Start resumes from it. [Informer.Empty] frees its memory. A [Factory] does
// the same for all informers of a cluster.
//
// The option [StartFrom] starts an informer from the state of an earlier process; the
// module github.com/tidings-io/tidings/journal keeps such states on disk.
//
// # Caveats
//
// Objects are shared and must not be modified. That applies to everything an
// informer returns or delivers. Make a DeepCopy first. Objects also share equal
// parts with each other, so one modification may change many of them.
// [DetectMutations] finds modifications in tests.
//
// Release views. A [View] pins the state it shows: until [View.Release], the store
// keeps a superseded version of each object that has changed or been deleted
// since.
//
// [Informer.Get] and [Informer.List] read the newest state. Two calls may see
// different states. To read several things from one state, use a View.
//
// Lists are ordered by key, namespace/name, compared bytewise: the order of a list
// from the API server.
//
// An informer lags behind the server. A write that has just returned may not be in
// the store. Wait for its resourceVersion with [Informer.WaitFor]. If the write
// does not affect the mirrored objects, only a bookmark ends that wait, which the
// server sends about once a minute.
//
// Resource versions are compared as decimal numbers, which Kubernetes guarantees
// for its own APIs. With a server that uses others, ResourceVersion is empty and
// WaitFor and EventsSince return [ErrVersion].
//
// Slow handlers cost memory, not time. A handler that falls behind keeps the
// events it has not received, with their objects, in the log. [FoldAfter] bounds
// that, at the price of intermediate states. The handler's lag is in [Status].
//
// A handler receives one event at a time, but the handlers of an informer run
// concurrently. A handler must not wait for its own end: [Informer.Stop],
// [Informer.Empty] and [Registration.Remove] wait for handlers to return.
//
// [Resync] is not a relist. It delivers the objects in the store again and makes
// no request. The informer misses no changes, so resync repairs nothing. It is for
// handlers that compare objects with something outside of the cluster.
//
// With Compact, each read may decode. Get and List return new objects unless a
// reader still holds the earlier ones, so do not compare pointers. Objects that
// the program holds take their full size.
//
// # Testing your controller
//
// Package informer/informertest has an API server in memory, for tests of whole
// controllers, and a fake source for [NewFromSource], for tests of what a controller
// does with events. With both, informers behave as with a cluster, including relists
// and tombstones, and work in a testing/synctest bubble.
//
// # Panics
//
// A panic of a handler is logged and counted, and the handler continues with the next
// event. A panic of a [Transform] or [Filter] fails the list or watch, which is
// retried. A panic of an index function leaves the object out of that index until the
// object changes. [Status] counts them, and [PanicError] names function and object.
//
// # Reading the source
//
// Follow one event. Informer.begin starts a run: it creates the queue and a
// reflector for each source. Reflector.Run runs a state machine. Its state
// watching calls source.Kube.Watch, by way of kubeSource.Watch. That reads the stream
// and decodes each event with a codec.Codec. The method watching.event puts it into
// the queue as a delta, with Queue.Push. In another goroutine, store.follow takes all
// waiting deltas with Queue.Pop and passes them to Indexer.Apply. That changes the
// store and calls Indexer.publish, which appends the events to the log with
// Log.Append and publishes both as one indexer.Cursor. Each
// Subscriber.Run waits for the next batch at its changelog.Position and calls the
// function that it got from subscription.deliver or, for [Handlers], from
// subscription.call. These expand what the store holds with store.expand and call
// your code.
//
// Then follow one list. The state listing.step chooses streaming.step, a WatchList
// stream, or paging.step, which calls source.Kube.List, by way of kubeSource.List.
// Reflector.replace puts the whole list into the queue as one delta, and
// Indexer.Apply compares it with the store. The other direction is
// [Informer.List]: [Informer.Append] calls store.list, which pins a view with
// Indexer.Pin. The method store.collect asks planFor for the best index and
// reads it with View.IndexedWindows, or all objects with View.Windows. Finally,
// Informer.indexLabels decides whether the next such query should have an index.
//
// docs/architecture.md describes how the parts fit together.
package informer
