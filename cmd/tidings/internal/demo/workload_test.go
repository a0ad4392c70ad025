package demo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

var (
	podsGVR        = corev1.SchemeGroupVersion.WithResource("pods")
	configMapsGVR  = corev1.SchemeGroupVersion.WithResource("configmaps")
	nodesGVR       = corev1.SchemeGroupVersion.WithResource("nodes")
	eventsGVR      = corev1.SchemeGroupVersion.WithResource("events")
	namespacesGVR  = corev1.SchemeGroupVersion.WithResource("namespaces")
	deploymentsGVR = appsv1.SchemeGroupVersion.WithResource("deployments")
	jobsGVR        = batchv1.SchemeGroupVersion.WithResource("jobs")
	slicesGVR      = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
)

var workloadResources = []schema.GroupVersionResource{
	podsGVR, nodesGVR, eventsGVR, namespacesGVR, configMapsGVR, deploymentsGVR, jobsGVR, slicesGVR,
	corev1.SchemeGroupVersion.WithResource("services"), corev1.SchemeGroupVersion.WithResource("endpoints"),
	appsv1.SchemeGroupVersion.WithResource("replicasets"), appsv1.SchemeGroupVersion.WithResource("statefulsets"),
	appsv1.SchemeGroupVersion.WithResource("daemonsets"), batchv1.SchemeGroupVersion.WithResource("cronjobs"),
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

// running is inBubble with a cluster that runs.
func running(t *testing.T, w demo.Workload, opts fakeapi.Options, test func(*rig)) {
	t.Helper()
	inBubble(t, w, opts, func(r *rig) {
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.cluster.Run(ctx)
		}()
		defer func() {
			cancel()
			<-ended
		}()
		test(r)
	})
}

func listed[T fakeapi.Object](r *rig, gvr schema.GroupVersionResource) []T {
	r.Helper()
	objs, _, err := r.cluster.List(gvr, "")
	r.must(err)
	out := make([]T, len(objs))
	for i, obj := range objs {
		out[i] = obj.(T)
	}
	return out
}

// state is everything there is at one time.
type state map[schema.GroupVersionResource][]fakeapi.Object

func (r *rig) state() state {
	r.Helper()
	out := state{}
	for _, gvr := range workloadResources {
		out[gvr] = listed[fakeapi.Object](r, gvr)
	}
	return out
}

func of[T fakeapi.Object](st state, gvr schema.GroupVersionResource) []T {
	out := make([]T, len(st[gvr]))
	for i, obj := range st[gvr] {
		out[i] = obj.(T)
	}
	return out
}

func key(obj metav1.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }

func TestWorkloadIsDeterministic(t *testing.T) {
	life := func(seed uint64) string {
		var dump strings.Builder
		running(t, demo.Workload{Seed: seed, Pods: 60}, fakeapi.Options{}, func(r *rig) {
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			st := r.state()
			for _, gvr := range workloadResources {
				for _, obj := range st[gvr] {
					text, err := json.Marshal(obj)
					r.must(err)
					fmt.Fprintf(&dump, "%s %s\n", gvr.Resource, text)
				}
			}
		})
		return dump.String()
	}
	one, same, other := life(1), life(1), life(2)
	if one != same {
		t.Error("two lives of the same seed differ:", cmp.Diff(strings.Split(one, "\n"), strings.Split(same, "\n"))[:2000])
	}
	if one == other {
		t.Error("the lives of two seeds are the same")
	}
}

func TestWorkloadIsConsistentAllTheTime(t *testing.T) {
	// With so little history the controllers lose track now and then, and
	// have to look at everything anew.
	for _, history := range []int{0, 30} {
		t.Run(fmt.Sprint("history ", history), func(t *testing.T) {
			running(t, demo.Workload{}, fakeapi.Options{History: history}, func(r *rig) {
				complete := map[string]bool{} // Deployments that were, at some time
				seen := map[string]bool{}     // what has happened
				for range 60 {
					time.Sleep(30 * time.Second)
					synctest.Wait()
					st := r.state()
					checkConsistency(r, st, complete)
					note(st, seen)
				}
				for _, what := range []string{
					"CrashLoopBackOff", "OOMKilled", "Evicted", "BackOff", "job completed", "NodeNotReady", "node removed",
					"namespace terminating", "rollout", "restart", "Pending",
				} {
					if !seen[what] {
						r.Errorf("half an hour without %s; there was %v", what, slices.Sorted(maps.Keys(seen)))
					}
				}
				for _, d := range listed[*appsv1.Deployment](r, deploymentsGVR) {
					if !complete[key(d)] && time.Since(d.CreationTimestamp.Time) > 5*time.Minute {
						r.Errorf("Deployment %s never was complete: %+v", key(d), d.Status)
					}
				}
			})
		})
	}
}

// checkConsistency looks for what must not be at any time.
func checkConsistency(r *rig, st state, complete map[string]bool) {
	r.Helper()
	owners := map[types.UID]bool{}
	for _, objs := range st {
		for _, obj := range objs {
			owners[obj.GetUID()] = true
		}
	}
	nodes, namespaces := map[string]bool{}, map[string]bool{}
	for _, node := range of[*corev1.Node](st, nodesGVR) {
		nodes[node.Name] = true
	}
	for _, ns := range of[*corev1.Namespace](st, namespacesGVR) {
		namespaces[ns.Name] = true
	}
	pods, ips, counted := map[string]*corev1.Pod{}, map[string]string{}, map[string]int32{}
	for _, pod := range of[*corev1.Pod](st, podsGVR) {
		pods[key(pod)] = pod
		owner := metav1.GetControllerOf(pod)
		if owner == nil || !owners[owner.UID] && pod.DeletionTimestamp == nil {
			r.Errorf("pod %s has no owner: %v", key(pod), owner)
			continue
		}
		if pod.Spec.NodeName != "" && !nodes[pod.Spec.NodeName] {
			r.Errorf("pod %s is on node %s, which is not there", key(pod), pod.Spec.NodeName)
		}
		if !namespaces[pod.Namespace] {
			r.Errorf("pod %s is in a namespace that is not there", key(pod))
		}
		if ip := pod.Status.PodIP; ip != "" && !pod.Spec.HostNetwork && pod.Status.Phase == corev1.PodRunning {
			if other := ips[ip]; other != "" {
				r.Errorf("pods %s and %s both have the address %s", other, key(pod), ip)
			}
			ips[ip] = key(pod)
		}
		if owner.Kind == "ReplicaSet" && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed {
			counted[pod.Namespace+"/"+owner.Name[:strings.LastIndex(owner.Name, "-")]]++
		}
	}
	if n := len(pods); n < 150 || n > 300 {
		r.Errorf("there are %d pods", n)
	}
	if n := len(of[*corev1.Event](st, eventsGVR)); n == 0 || n > 6000 {
		r.Errorf("there are %d events", n)
	}
	for _, d := range of[*appsv1.Deployment](st, deploymentsGVR) {
		status := d.Status
		if status.Replicas != counted[key(d)] {
			r.Errorf("Deployment %s says it has %d pods, and has %d", key(d), status.Replicas, counted[key(d)])
		}
		if status.AvailableReplicas < *d.Spec.Replicas/2 && d.CreationTimestamp.Time.Before(time.Now().Add(-time.Hour)) {
			r.Errorf("Deployment %s is down: %d of %d pods are available", key(d), status.AvailableReplicas, *d.Spec.Replicas)
		}
		if status.UpdatedReplicas == *d.Spec.Replicas && status.Replicas == status.UpdatedReplicas && status.AvailableReplicas == status.UpdatedReplicas && status.ObservedGeneration == d.Generation {
			complete[key(d)] = true
		}
	}
	// The controller waits a second for more to change, so there may be a few.
	gone := 0
	for _, slice := range of[*discoveryv1.EndpointSlice](st, slicesGVR) {
		for _, e := range slice.Endpoints {
			if pods[e.TargetRef.Namespace+"/"+e.TargetRef.Name] == nil {
				gone++
			}
		}
	}
	if gone > 30 {
		r.Errorf("EndpointSlices have %d pods that are not there", gone)
	}
}

// note notes what can be seen to have happened.
func note(st state, seen map[string]bool) {
	for _, pod := range of[*corev1.Pod](st, podsGVR) {
		seen[string(pod.Status.Phase)] = true
		seen[pod.Status.Reason] = true
		for _, cs := range pod.Status.ContainerStatuses {
			if w := cs.State.Waiting; w != nil {
				seen[w.Reason] = true
			}
			if t := cs.LastTerminationState.Terminated; t != nil {
				seen[t.Reason] = true
				seen["restart"] = seen["restart"] || cs.RestartCount > 0
			}
		}
	}
	for _, job := range of[*batchv1.Job](st, jobsGVR) {
		seen["job completed"] = seen["job completed"] || job.Status.CompletionTime != nil
	}
	for _, ns := range of[*corev1.Namespace](st, namespacesGVR) {
		seen["namespace terminating"] = seen["namespace terminating"] || ns.Status.Phase == corev1.NamespaceTerminating
	}
	for _, e := range of[*corev1.Event](st, eventsGVR) {
		seen[e.Reason] = true
		seen["node removed"] = seen["node removed"] || e.Reason == "RemovingNode"
		seen["rollout"] = seen["rollout"] || strings.HasPrefix(e.Message, "Scaled down replica set")
	}
}

func TestWorkloadHasWhatPeopleLookFor(t *testing.T) {
	inBubble(t, demo.Workload{}, fakeapi.Options{}, func(r *rig) {
		dns, err := r.typed.AppsV1().Deployments("").List(r.ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		r.must(err)
		if len(dns.Items) != 1 || key(&dns.Items[0]) != "kube-system/coredns" || dns.Items[0].Status.AvailableReplicas != 2 {
			r.Errorf("the DNS Deployments are %v", names[appsv1.Deployment](dns.Items))
		}
		pods, err := r.typed.CoreV1().Pods("shop").List(r.ctx, metav1.ListOptions{LabelSelector: "app=frontend", FieldSelector: "status.phase=Running"})
		r.must(err)
		if len(pods.Items) < 5 {
			r.Fatalf("only %d frontends are running", len(pods.Items))
		}
		slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		pod := pods.Items[0]
		for what, ok := range map[string]bool{
			"a template hash":    pod.Labels["pod-template-hash"] != "",
			"an owner":           metav1.GetControllerOf(&pod) != nil,
			"managed fields":     len(pod.ManagedFields) >= 2 && pod.ManagedFields[0].FieldsV1 != nil,
			"a node":             pod.Spec.NodeName != "",
			"a token":            slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access-") }),
			"requests":           !pod.Spec.Containers[0].Resources.Requests.Memory().IsZero(),
			"probes":             pod.Spec.Containers[0].ReadinessProbe != nil,
			"tolerations":        len(pod.Spec.Tolerations) > 0,
			"an address":         pod.Status.PodIP != "" && pod.Status.HostIP != "",
			"conditions":         len(pod.Status.Conditions) >= 5,
			"container statuses": len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers),
			"some age":           time.Since(pod.CreationTimestamp.Time) > time.Minute,
		} {
			if !ok {
				text, _ := json.MarshalIndent(pod, "", " ")
				r.Fatalf("a pod without %s:\n%s", what, text)
			}
		}
	})
}

func TestWorkloadReactsToClients(t *testing.T) {
	running(t, demo.Workload{Pods: 60}, fakeapi.Options{}, func(r *rig) {
		settle := func() { time.Sleep(time.Minute); synctest.Wait() }
		pods := func(selector string) []corev1.Pod {
			list, err := r.typed.CoreV1().Pods("default").List(r.ctx, metav1.ListOptions{LabelSelector: selector})
			r.must(err)
			return list.Items
		}
		before := pods("app=hello")
		r.must(r.typed.CoreV1().Pods("default").Delete(r.ctx, before[0].Name, metav1.DeleteOptions{}))
		going, err := r.typed.CoreV1().Pods("default").Get(r.ctx, before[0].Name, metav1.GetOptions{})
		r.must(err)
		if going.DeletionTimestamp == nil {
			r.Error("a deleted pod does not terminate")
		}
		settle()
		if after := pods("app=hello"); len(after) != len(before) || slices.Contains(names[corev1.Pod](after), before[0].Name) {
			r.Errorf("after a pod was deleted there are %v, before %v", names[corev1.Pod](after), names[corev1.Pod](before))
		}
		scale, err := r.typed.AppsV1().Deployments("default").GetScale(r.ctx, "hello", metav1.GetOptions{})
		r.must(err)
		scale.Spec.Replicas = 7
		_, err = r.typed.AppsV1().Deployments("default").UpdateScale(r.ctx, "hello", scale, metav1.UpdateOptions{})
		r.must(err)
		settle()
		if n := len(pods("app=hello")); n != 7 {
			r.Errorf("scaled to 7, there are %d pods", n)
		}

		mine := map[string]string{"mine": "yes"}
		tmpl := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: mine}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}
		_, err = r.typed.AppsV1().Deployments("default").Create(r.ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "mine"},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: mine}, Template: tmpl},
		}, metav1.CreateOptions{})
		r.must(err)
		settle()
		d, err := r.typed.AppsV1().Deployments("default").Get(r.ctx, "mine", metav1.GetOptions{})
		r.must(err)
		if d.Status.AvailableReplicas != 3 || len(pods("mine=yes")) != 3 {
			r.Errorf("a new Deployment has %+v", d.Status)
		}
		r.must(r.typed.AppsV1().Deployments("default").Delete(r.ctx, "mine", metav1.DeleteOptions{}))
		settle()
		if left := pods("mine=yes"); len(left) != 0 {
			r.Errorf("the pods of a deleted Deployment stay: %v", names[corev1.Pod](left))
		}

		tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err = r.typed.BatchV1().Jobs("default").Create(r.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: batchv1.JobSpec{Template: tmpl}}, metav1.CreateOptions{})
		r.must(err)
		time.Sleep(10 * time.Minute)
		job, err := r.typed.BatchV1().Jobs("default").Get(r.ctx, "mine", metav1.GetOptions{})
		r.must(err)
		if job.Status.Succeeded != 1 {
			r.Errorf("a new Job has %+v", job.Status)
		}

		// Nothing is validated, so nothing may be taken for granted.
		for _, odd := range []fakeapi.Object{
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}},
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}},
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "odd2", Namespace: "default"}, Spec: appsv1.DeploymentSpec{Replicas: ptr(int32(-3)), Selector: &metav1.LabelSelector{}}},
			&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}},
			&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}},
			&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}},
			&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "odd"}},
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}, Spec: corev1.ServiceSpec{Selector: mine}},
		} {
			_, err := r.cluster.Create(odd)
			r.must(err)
		}
		settle()
	})
}

func TestRunCanStopAndGoOn(t *testing.T) {
	inBubble(t, demo.Workload{Pods: 40}, fakeapi.Options{}, func(r *rig) {
		for range 2 {
			before := r.cluster.ResourceVersion()
			ctx, cancel := context.WithTimeout(r.ctx, 2*time.Minute)
			r.cluster.Run(ctx)
			cancel()
			if r.cluster.ResourceVersion() == before {
				r.Error("two minutes in which nothing happened")
			}
			before = r.cluster.ResourceVersion()
			time.Sleep(time.Hour)
			if r.cluster.ResourceVersion() != before {
				r.Error("something happened while nobody ran the cluster")
			}
		}
	})
}

func ptr[T any](v T) *T { return &v }
