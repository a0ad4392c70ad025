// Package informer keeps a live, local, indexed mirror of Kubernetes resources
// and tells what changes: list and watch, done once and shared by everyone.
//
//	conn, err := cluster.FromKubeconfig("", "")           // or cluster.New(name, restConfig)
//	pods, err := informer.New[*corev1.Pod](conn, informer.InNamespace("shop"))
//	pods.AddHandler(informer.Handlers[*corev1.Pod]{Add: …, Update: …, Delete: …})
//	err = pods.Start(ctx)                                 // waits for the first list
//	defer pods.Stop(ctx)
//	pod, ok := pods.Get("shop", "web-0")                  // from memory
//
// # What is kept
//
// The type parameter says what is kept of each object: *corev1.Pod or another Go
// type of a kind, *unstructured.Unstructured for any resource at all, or
// *metav1.PartialObjectMetadata for metadata only, in which case the server sends
// no more than that. Objects carry their kind and apiVersion. managedFields are
// dropped unless [KeepManagedFields] asks for them. An informer may also keep what
// a list and watch of the caller's bring, see [NewFromSource].
//
// With [Compact], what is kept is the encoding, compressed, and an object is
// decoded when it is read: slower, and a tenth of the memory.
//
// Objects are shared by everyone who reads them. Nobody may modify them; make a
// DeepCopy first. [DetectMutations] finds out who does not.
//
// # What is told
//
// Handlers ([Informer.AddHandler]) and loops ([Informer.Events]) are told the
// same: every object there is, as [Added] with InInitialList set; then [Synced];
// then every change, once, in the order in which it happened. The store is
// up to date before a change is told, so what a reader finds there is what it
// has been told or newer. Each follower goes at its own pace and holds up nobody
// else; what it has not come to waits in a log that all followers share.
//
// When a watch breaks, the informer goes on from the resourceVersion it had come
// to, and nothing is missed. When the server no longer has that version (410), it
// lists again and tells the difference: deletions first, with Tombstone set since
// the last state may have gone unseen, then what is new or changed. An object
// that was deleted and made again in the gap is told as both, and so is one that
// changes its uid; an informer never passes one object off as another.
//
// # Waiting and failing
//
// [Informer.Start] returns once the informer has a complete list, or with an
// error if the server refuses it: a missing permission or resource is an error
// that says what to do, never a hang. A network failure is tried again, with
// exponential backoff between 0.8 and 60 seconds, for as long as ctx allows.
// Later refusals are waited out the same way; [Informer.Status] tells, and
// [Informer.StatusChanged] wakes those who want to know. [Informer.WaitFor] waits
// until the informer has seen a write of yours.
//
// # Stopping and starting again
//
// [Informer.Stop] leaves no goroutine behind. The store stays readable, and the
// next Start goes on where it was. [Informer.Empty] gives the memory back. A
// [Factory] does this for all informers of a cluster, or call it for one.
package informer
