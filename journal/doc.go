// Package journal keeps the objects of informers in a folder, so that a program that is
// started again goes on where it ended: its informers ask the API server for a watch from
// the last resourceVersion, and list nothing.
//
//	j, err := journal.Open("/var/lib/controller")
//	...
//	defer j.Close()
//	pods, err := journal.NewInformer[*corev1.Pod](j, "pods", conn)
//
// The informer is one of package informer. It lists as usual if the API server no longer
// knows the version, if the folder is of another cluster, or if it cannot be read.
//
// The folder holds the newest version of each object and nothing older. It is a Pebble
// database of plain objects: protect it as you would protect etcd. A machine that fails
// may lose the last moments of it, never a part: what is left is a state that the cluster
// once had.
//
// The package is a module of its own, so that programs that do not use it do not depend on
// the storage engine.
package journal
