// Package samplepods provides realistic pods for tests and benchmarks: 5,000 that
// were recorded in a cluster, and any number of clones of them.
//
// The recording is the answer to one GET /api/v1/pods in protobuf. A real
// kube-apiserver, kube-controller-manager and kube-scheduler, version 1.36.3,
// created the pods from 100 Deployments of 50 replicas in 10 namespaces; kwok
// simulated the kubelets of 100 nodes. So they have the managedFields, owner
// references, conditions and statuses of real pods. They have no service account,
// because the API server ran without the admission plugin ServiceAccount. [Clone]
// does what the plugin does.
package samplepods

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

//go:embed pods-5000.pb.zst
var recording []byte

// answer returns the body of the recorded answer, 27 MB, as the API server sent it:
// the four bytes "k8s\0" and a runtime.Unknown whose Raw is a v1.PodList.
var answer = sync.OnceValue(func() []byte {
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		panic(fmt.Sprintf("samplepods: %v", err))
	}
	defer decoder.Close()
	answer, err := decoder.DecodeAll(recording, nil)
	if err != nil {
		panic(fmt.Sprintf("samplepods: decompress the recording: %v", err))
	}
	return answer
})

// Load returns a new copy of the recorded list of pods, in etcd's order.
func Load() *corev1.PodList {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(answer()[len("k8s\x00"):]); err != nil {
		panic(fmt.Sprintf("samplepods: decode the recording: %v", err))
	}
	list := &corev1.PodList{}
	if err := list.Unmarshal(envelope.Raw); err != nil {
		panic(fmt.Sprintf("samplepods: decode the recording: %v", err))
	}
	return list
}
