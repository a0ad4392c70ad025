package demo

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// The simulation writes to the cluster like any client, only without HTTP. A
// write that fails because a client was faster is no error: the controllers
// will see the client's change.

// get returns an object of the cluster. It must not be modified.
func get[T fakeapi.Object](s *simulation, r ref) (obj T, ok bool) {
	obj, ok = s.c.Peek(r.gvr, r.namespace, r.name).(T)
	return obj, ok
}

// all returns the objects of a resource in order, in a namespace or in all with
// "". They must not be modified.
func all[T fakeapi.Object](s *simulation, gvr schema.GroupVersionResource, namespace string) []T {
	objs, _ := s.c.PeekAll(gvr, namespace)
	out := make([]T, len(objs))
	for i, obj := range objs {
		out[i] = obj.(T)
	}
	return out
}

// create stores a new object, which must not be modified from then on. It
// reports false if an object of that name exists.
func create[T fakeapi.Object](s *simulation, gvr schema.GroupVersionResource, obj T) (T, bool) {
	if obj.GetName() == "" {
		obj.SetName(obj.GetGenerateName() + s.suffix(5))
	}
	obj.SetUID(s.uid())
	obj.SetCreationTimestamp(s.stamp())
	if hasGeneration(gvr) {
		obj.SetGeneration(1)
	}
	return obj, s.c.Insert(gvr, obj) == nil
}

// hasGeneration reports whether the API server counts the specs of a resource.
func hasGeneration(gvr schema.GroupVersionResource) bool {
	switch gvr {
	case gvrPods, gvrPVCs, gvrPVs, gvrDaemonSets, gvrDeployments, gvrReplicaSets, gvrStatefulSets,
		gvrCronJobs, gvrJobs, gvrIngresses, gvrPDBs:
		return true
	}
	return false
}

// mutate applies change to a copy of an object and stores it. It reports false
// if there is none. change runs under the cluster's lock and must not use the
// cluster.
func mutate[T fakeapi.Object](s *simulation, r ref, change func(T)) bool {
	return mutateIf(s, r, func(_, obj T) bool { change(obj); return true })
}

// mutateIf is mutate for a change that reports whether it changed anything.
func mutateIf[T fakeapi.Object](s *simulation, r ref, change func(current, obj T) bool) bool {
	return nil == s.c.Modify(r.gvr, r.namespace, r.name, func(current fakeapi.Object) (fakeapi.Object, error) {
		was, ok := current.(T)
		if !ok {
			return nil, fmt.Errorf("demo: %s is a %T", r.name, current)
		}
		obj := current.DeepCopyObject().(T)
		if !change(was, obj) {
			return current, nil
		}
		return obj, nil
	})
}

// remove deletes an object as a request does, gracefully.
func (s *simulation) remove(r ref) {
	_ = s.c.DeleteGracefully(r.gvr, r.namespace, r.name, s.now())
}

// removeNow deletes an object at once.
func (s *simulation) removeNow(r ref) { _ = s.c.Delete(r.gvr, r.namespace, r.name) }

// stamp is the simulated time in the precision of the API.
func (s *simulation) stamp() metav1.Time { return metav1.NewTime(s.now().Truncate(time.Second)) }

func (s *simulation) microStamp() metav1.MicroTime {
	return metav1.NewMicroTime(s.now().Truncate(time.Microsecond))
}

// suffix returns the random end of a name, in the alphabet of Kubernetes, which
// avoids words.
func (s *simulation) suffix(n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, n)
	for i := range out {
		out[i] = alphabet[s.rng.IntN(len(alphabet))]
	}
	return string(out)
}

func (s *simulation) hex(n int) string {
	out := make([]byte, n)
	for i := range out {
		out[i] = "0123456789abcdef"[s.rng.IntN(16)]
	}
	return string(out)
}

func (s *simulation) uid() types.UID {
	return types.UID(fmt.Sprintf("%s-%s-4%s-%c%s-%s", s.hex(8), s.hex(4), s.hex(3), "89ab"[s.rng.IntN(4)], s.hex(3), s.hex(12)))
}

// controllerRef returns the owner references of an object that owner controls.
func controllerRef(owner fakeapi.Object, gvk schema.GroupVersionKind) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)}
}

func ptr[T any](v T) *T { return &v }
