// Package samplepods has pods as a real cluster has them, for tests and
// benchmarks: 5,000 that were recorded, and any number of clones of them.
//
// The recording is the answer to one GET /api/v1/pods in protobuf. A real
// kube-apiserver, kube-controller-manager and kube-scheduler made the pods, at
// version 1.36.3, from 100 Deployments of 50 replicas in 10 namespaces, with
// kwok playing the kubelets of 100 nodes. So they carry managedFields, owner
// references, conditions and statuses as pods do. They have no service account:
// the API server ran without the plugin that gives them one. [Clone] does as
// the plugin does.
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

// answer is the recording as the API server sent it.
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

// Answer returns the body of the recorded answer, 27 MB, as the API server sent
// it: the four bytes "k8s\0", a runtime.Unknown, and in its Raw a v1.PodList.
// It is the same slice every time and must not be changed.
func Answer() []byte { return answer() }

// Load returns the recorded pods in etcd's order, as the list they came in. They
// are the caller's own.
func Load() *corev1.PodList {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(Answer()[len("k8s\x00"):]); err != nil {
		panic(fmt.Sprintf("samplepods: decode the recording: %v", err))
	}
	list := &corev1.PodList{}
	if err := list.Unmarshal(envelope.Raw); err != nil {
		panic(fmt.Sprintf("samplepods: decode the recording: %v", err))
	}
	return list
}
