package demo

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The simulation writes to the store like any client, only without HTTP. That
// somebody else was faster is no error: the controllers will hear of it.

// get returns what the store holds. It must not be changed.
func get[T Object](s *simulation, r ref) (obj T, ok bool) {
	rec, err := s.c.get(r.gvr, r.namespace, r.name)
	if err != nil {
		return obj, false
	}
	obj, ok = rec.obj.(T)
	return obj, ok
}

// all returns what the store holds of a resource, in order, in a namespace or
// in all with "". The objects must not be changed.
func all[T Object](s *simulation, gvr schema.GroupVersionResource, namespace string) []T {
	s.c.mu.RLock()
	defer s.c.mu.RUnlock()
	r, ok := s.c.resources[gvr]
	if !ok {
		return nil
	}
	items := r.collect(s.c.rev, selection{namespace: namespace}, "", 0).items
	out := make([]T, len(items))
	for i, rec := range items {
		out[i] = rec.obj.(T)
	}
	return out
}

// create stores a new object, which then is the store's. It reports false if
// there is one of its name already.
func create[T Object](s *simulation, gvr schema.GroupVersionResource, obj T) (T, bool) {
	if obj.GetName() == "" {
		obj.SetName(obj.GetGenerateName() + s.suffix(5))
	}
	obj.SetUID(s.uid())
	obj.SetCreationTimestamp(s.stamp())
	r, ok := s.c.lookup(gvr)
	if !ok {
		return obj, false
	}
	if r.hasStatus && r.gvk.Kind != "Namespace" && r.gvk.Kind != "Service" && r.gvk.Kind != "Node" {
		obj.SetGeneration(1)
	}
	_, err := s.c.insert(r, obj)
	return obj, err == nil
}

// mutate changes an object of the store. It reports false if there is none.
// change runs under the store's lock and must not use the store.
func mutate[T Object](s *simulation, r ref, change func(T)) bool {
	return mutateIf(s, r, func(_, obj T) bool { change(obj); return true })
}

// mutateIf is mutate for a change that can tell at a glance that it is none.
func mutateIf[T Object](s *simulation, r ref, change func(current, obj T) bool) bool {
	res, ok := s.c.lookup(r.gvr)
	if !ok {
		return false
	}
	_, err := s.c.modify(res, r.namespace, r.name, func(current Object) (Object, error) {
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
	return err == nil
}

// remove deletes an object as the API server does it.
func (s *simulation) remove(r ref) {
	if res, ok := s.c.lookup(r.gvr); ok {
		_, _, _ = s.c.remove(res, r.namespace, r.name, &metav1.DeleteOptions{}, s.now())
	}
}

// removeNow deletes an object without any ado.
func (s *simulation) removeNow(r ref) { _ = s.c.Delete(r.gvr, r.namespace, r.name) }

// stamp is the time in the precision of the API.
func (s *simulation) stamp() metav1.Time { return metav1.NewTime(s.now().Truncate(time.Second)) }

func (s *simulation) microStamp() metav1.MicroTime {
	return metav1.NewMicroTime(s.now().Truncate(time.Microsecond))
}

// suffix is a random end of a name, in the alphabet that Kubernetes uses to
// avoid words.
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

// controllerRef makes an object the controller of another one.
func controllerRef(owner Object, gvk schema.GroupVersionKind) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)}
}

func ptr[T any](v T) *T { return &v }
