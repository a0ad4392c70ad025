package demo

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

var (
	gvrConfigMaps      = corev1.SchemeGroupVersion.WithResource("configmaps")
	gvrEndpoints       = corev1.SchemeGroupVersion.WithResource("endpoints")
	gvrEvents          = corev1.SchemeGroupVersion.WithResource("events")
	gvrNamespaces      = corev1.SchemeGroupVersion.WithResource("namespaces")
	gvrNodes           = corev1.SchemeGroupVersion.WithResource("nodes")
	gvrPods            = corev1.SchemeGroupVersion.WithResource("pods")
	gvrPVCs            = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	gvrPVs             = corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	gvrSecrets         = corev1.SchemeGroupVersion.WithResource("secrets")
	gvrServiceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	gvrServices        = corev1.SchemeGroupVersion.WithResource("services")
	gvrDaemonSets      = appsv1.SchemeGroupVersion.WithResource("daemonsets")
	gvrDeployments     = appsv1.SchemeGroupVersion.WithResource("deployments")
	gvrReplicaSets     = appsv1.SchemeGroupVersion.WithResource("replicasets")
	gvrStatefulSets    = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	gvrCronJobs        = batchv1.SchemeGroupVersion.WithResource("cronjobs")
	gvrJobs            = batchv1.SchemeGroupVersion.WithResource("jobs")
	gvrIngresses       = networkingv1.SchemeGroupVersion.WithResource("ingresses")
	gvrPDBs            = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	gvrStorageClasses  = storagev1.SchemeGroupVersion.WithResource("storageclasses")
	gvrSlices          = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	gvrLeases          = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// watched are the resources that controllers react to, in the order in which
// their changes are handled.
var watched = []schema.GroupVersionResource{
	gvrNamespaces, gvrNodes, gvrServices, gvrCronJobs, gvrJobs,
	gvrDeployments, gvrDaemonSets, gvrStatefulSets, gvrReplicaSets, gvrPods, gvrSlices,
}

// ref names an object.
type ref struct {
	gvr             schema.GroupVersionResource
	namespace, name string
}

func compareRefs(a, b ref) int {
	return cmp.Or(strings.Compare(a.gvr.Resource, b.gvr.Resource), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

// controllers is what all controllers share: their position in the history,
// an index of objects by owner, and a work queue.
type controllers struct {
	next     []uint64 // per watched resource, the position of the first unseen change
	children map[types.UID]map[ref]bool
	services map[string]map[string]bool // by namespace
	waiting  map[string]bool            // namespaces whose Services are about to be enqueued
	queue    []ref
	queued   map[ref]bool
}

func (f *controllers) init() {
	f.next = make([]uint64, len(watched))
	f.children = map[types.UID]map[ref]bool{}
	f.services = map[string]map[string]bool{}
	f.waiting = map[string]bool{}
	f.queued = map[ref]bool{}
}

// settle lets the controllers react to all changes, including their own, until
// nothing is left to do.
func (s *simulation) settle() {
	for s.observe() || len(s.queue) > 0 {
		for len(s.queue) > 0 {
			r := s.queue[0]
			s.queue = s.queue[1:]
			delete(s.queued, r)
			s.reconcile(r)
		}
	}
}

// observe handles all new changes. It reports whether there were any.
func (s *simulation) observe() bool {
	changed := false
	for i, gvr := range watched {
		changes, ok := s.c.Changes(gvr, s.next[i])
		if !ok { // the history no longer has everything that was missed
			s.resync()
			return true
		}
		s.next[i] += uint64(len(changes))
		for _, ch := range changes {
			s.take(gvr, ch)
			changed = true
		}
	}
	return changed
}

// resync starts over from the current objects.
func (s *simulation) resync() {
	s.controllers.init()
	for i, gvr := range watched {
		objs, next := s.c.PeekAll(gvr, "")
		s.next[i] = next
		for _, obj := range objs {
			s.take(gvr, fakeapi.Change{Type: watch.Added, Now: obj})
		}
	}
	for uid, life := range s.lives { // whose deletion may have been missed
		if _, ok := s.podOf(life); !ok {
			s.podGone(uid)
		}
	}
}

// take records a change and enqueues the objects it affects.
func (s *simulation) take(gvr schema.GroupVersionResource, ch fakeapi.Change) {
	obj := ch.Now
	self := ref{gvr, obj.GetNamespace(), obj.GetName()}
	gone := ch.Type == watch.Deleted
	if owner := metav1.GetControllerOf(obj); owner != nil {
		kids := s.children[owner.UID]
		if gone {
			delete(kids, self)
			if len(kids) == 0 {
				delete(s.children, owner.UID)
			}
		} else {
			if kids == nil {
				kids = map[ref]bool{}
				s.children[owner.UID] = kids
			}
			kids[self] = true
		}
		s.enqueueOwner(obj.GetNamespace(), owner)
	}
	if gone {
		for _, kid := range s.childrenOf(obj.GetUID()) {
			s.enqueue(kid)
		}
	}
	switch gvr {
	case gvrPods:
		if gone {
			s.podGone(obj.GetUID())
		}
		if ch.Type != watch.Modified || ch.Prev == nil || endpointOf(ch.Prev.(*corev1.Pod)) != endpointOf(obj.(*corev1.Pod)) {
			s.enqueueServices(obj.GetNamespace())
		}
	case gvrServices:
		if s.services[self.namespace] == nil {
			s.services[self.namespace] = map[string]bool{}
		}
		s.services[self.namespace][self.name] = true
		if gone {
			delete(s.services[self.namespace], self.name)
			delete(s.ips, obj.(*corev1.Service).Spec.ClusterIP)
			s.removeNow(ref{gvrEndpoints, self.namespace, self.name})
		}
	case gvrNodes:
		if gone {
			s.nodeGone(obj.(*corev1.Node))
		}
		if gone || ch.Type == watch.Added || schedulable(ch.Prev.(*corev1.Node)) != schedulable(obj.(*corev1.Node)) {
			for _, ds := range all[*appsv1.DaemonSet](s, gvrDaemonSets, "") {
				s.enqueue(ref{gvrDaemonSets, ds.Namespace, ds.Name})
			}
		}
	}
	s.enqueue(self)
}

func (s *simulation) enqueue(r ref) {
	if !s.queued[r] {
		s.queued[r] = true
		s.queue = append(s.queue, r)
	}
}

func (s *simulation) enqueueOwner(namespace string, owner *metav1.OwnerReference) {
	if owner.Kind == "Node" {
		s.enqueue(ref{gvrNodes, "", owner.Name})
	}
	for gvr, kind := range map[schema.GroupVersionResource]string{
		gvrDeployments: "Deployment", gvrReplicaSets: "ReplicaSet", gvrDaemonSets: "DaemonSet",
		gvrStatefulSets: "StatefulSet", gvrJobs: "Job", gvrCronJobs: "CronJob",
	} {
		if kind == owner.Kind {
			s.enqueue(ref{gvr, namespace, owner.Name})
		}
	}
}

// enqueueServices enqueues the Services of a namespace in a second: pods change
// in bursts, and the endpoints controller waits for the end of one.
func (s *simulation) enqueueServices(namespace string) {
	if s.waiting[namespace] {
		return
	}
	s.waiting[namespace] = true
	s.after(time.Second, func() {
		delete(s.waiting, namespace)
		for _, name := range slices.Sorted(maps.Keys(s.services[namespace])) {
			s.enqueue(ref{gvrServices, namespace, name})
		}
	})
}

// childrenOf lists the objects that an object controls, in order.
func (s *simulation) childrenOf(uid types.UID) []ref {
	kids := make([]ref, 0, len(s.children[uid]))
	for kid := range s.children[uid] {
		kids = append(kids, kid)
	}
	slices.SortFunc(kids, compareRefs)
	return kids
}

// owned lists the objects of one resource that an object controls.
func owned[T fakeapi.Object](s *simulation, gvr schema.GroupVersionResource, owner metav1.Object) []T {
	var out []T
	for _, kid := range s.childrenOf(owner.GetUID()) {
		if kid.gvr != gvr {
			continue
		}
		if obj, ok := get[T](s, kid); ok {
			out = append(out, obj)
		}
	}
	return out
}

// reconcile runs the controller of an object.
func (s *simulation) reconcile(r ref) {
	obj, ok := get[fakeapi.Object](s, r)
	if !ok {
		return
	}
	if owner := metav1.GetControllerOf(obj); owner != nil && obj.GetDeletionTimestamp() == nil && s.orphaned(r, owner) {
		s.remove(r)
		return
	}
	switch o := obj.(type) {
	case *corev1.Namespace:
		s.syncNamespace(o)
	case *corev1.Node:
		s.syncNode(o)
	case *corev1.Service:
		s.syncService(o)
	case *corev1.Pod:
		s.syncPod(o)
	case *appsv1.Deployment:
		s.syncDeployment(o)
	case *appsv1.ReplicaSet:
		s.syncReplicaSet(o)
	case *appsv1.DaemonSet:
		s.syncDaemonSet(o)
	case *appsv1.StatefulSet:
		s.syncStatefulSet(o)
	case *batchv1.Job:
		s.syncJob(o)
	case *batchv1.CronJob:
		s.syncCronJob(o)
	}
}

// orphaned reports whether an object's controller is gone, for the garbage
// collector.
func (s *simulation) orphaned(r ref, owner *metav1.OwnerReference) bool {
	var gvr schema.GroupVersionResource
	switch owner.Kind {
	case "Deployment":
		gvr = gvrDeployments
	case "ReplicaSet":
		gvr = gvrReplicaSets
	case "DaemonSet":
		gvr = gvrDaemonSets
	case "StatefulSet":
		gvr = gvrStatefulSets
	case "Job":
		gvr = gvrJobs
	case "CronJob":
		gvr = gvrCronJobs
	case "Service":
		gvr = gvrServices
	case "Node":
		node, ok := get[*corev1.Node](s, ref{gvrNodes, "", owner.Name})
		return !ok || node.UID != owner.UID
	default:
		return false
	}
	obj, ok := get[fakeapi.Object](s, ref{gvr, r.namespace, owner.Name})
	return !ok || obj.GetUID() != owner.UID
}
