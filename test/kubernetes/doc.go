// Command kubernetes measures the whole kube-controller-manager and kube-scheduler on
// the informers of informer/clientgo beside the same programs on client-go's: memory,
// and the CPU time until they have come to rest.
//
//	cd test/kubernetes && go run . --pods 10000 --runs 3
//
// The programs are those of k8s.io/kubernetes, built once. One edit makes them
// comparable: client-go's constructor of shared informers calls a hook (see build.go).
// Each run starts a program against a real kube-apiserver with recorded pods, waits
// until the program has done a piece of its work (the pods of a new Deployment; the
// binding of a new pod) and uses no CPU any more, and reads what the kernel says of it.
//
// Controllers that would delete the pods because no kubelet answers for them are off.
package main
