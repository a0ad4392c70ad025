package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

var (
	gvkReplicaSet  = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	gvkDaemonSet   = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	gvkStatefulSet = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
)

// newPod returns a pod of a template, with the fields that admission adds.
func (s *simulation) newPod(owner fakeapi.Object, gvk schema.GroupVersionKind, tmpl *corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    owner.GetName() + "-",
			Namespace:       owner.GetNamespace(),
			Labels:          copyMap(tmpl.Labels),
			Annotations:     copyMap(tmpl.Annotations),
			OwnerReferences: controllerRef(owner, gvk),
		},
		Spec:   *tmpl.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	s.manage(pod, corev1.SchemeGroupVersion.WithKind("Pod"), "kube-controller-manager")

	spec := &pod.Spec
	spec.ServiceAccountName = cmp.Or(spec.ServiceAccountName, "default")
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	spec.SchedulerName = cmp.Or(spec.SchedulerName, corev1.DefaultSchedulerName)
	spec.RestartPolicy = cmp.Or(spec.RestartPolicy, corev1.RestartPolicyAlways)
	spec.Priority = ptr(int32(0))
	spec.PreemptionPolicy = ptr(corev1.PreemptLowerPriority)
	spec.EnableServiceLinks = ptr(true)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr(int64(300)),
		})
	}
	token := "kube-api-access-" + s.suffix(5)
	spec.Volumes = append(spec.Volumes, tokenVolume(token))
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = append(spec.Containers[i].VolumeMounts, corev1.VolumeMount{
			Name: token, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
		})
	}
	return pod
}

func tokenVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: ptr(int32(420)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}

func copyMap(m map[string]string) map[string]string {
	out := make(map[string]string, len(m)+1)
	for k, v := range m {
		out[k] = v
	}
	return out
}

func replicasOf(n *int32) int32 {
	if n == nil {
		return 1
	}
	return max(0, *n)
}

func podRef(pod *corev1.Pod) ref { return ref{gvrPods, pod.Namespace, pod.Name} }

// counts counts pods for a status.
func counts(pods []*corev1.Pod) (active []*corev1.Pod, ready int32) {
	for _, pod := range pods {
		if isActive(pod) {
			active = append(active, pod)
			if isReady(pod) {
				ready++
			}
		}
	}
	return active, ready
}

func (s *simulation) syncReplicaSet(rs *appsv1.ReplicaSet) {
	active, _ := counts(owned[*corev1.Pod](s, gvrPods, rs))
	want := int(replicasOf(rs.Spec.Replicas))
	for range want - len(active) {
		pod, ok := create(s, gvrPods, s.newPod(rs, gvkReplicaSet, &rs.Spec.Template))
		if ok {
			s.event(rs, normal, "replicaset-controller", "SuccessfulCreate", "Created pod: %s", pod.Name)
		}
	}
	if surplus := len(active) - want; surplus > 0 {
		// Remove the least useful pods first.
		slices.SortStableFunc(active, func(a, b *corev1.Pod) int { return cmp.Compare(useOf(a), useOf(b)) })
		for _, pod := range active[:surplus] {
			s.remove(podRef(pod))
			s.event(rs, normal, "replicaset-controller", "SuccessfulDelete", "Deleted pod: %s", pod.Name)
		}
	}
	active, ready := counts(owned[*corev1.Pod](s, gvrPods, rs))
	mutateStatus(s, ref{gvrReplicaSets, rs.Namespace, rs.Name}, "kube-controller-manager", func(rs *appsv1.ReplicaSet) {
		rs.Status.Replicas = int32(len(active))
		rs.Status.FullyLabeledReplicas = int32(len(active))
		rs.Status.ReadyReplicas = ready
		rs.Status.AvailableReplicas = ready
		rs.Status.ObservedGeneration = rs.Generation
	})
}

func useOf(pod *corev1.Pod) int {
	switch {
	case pod.Spec.NodeName == "":
		return 0
	case pod.Status.Phase == corev1.PodPending:
		return 1
	case !isReady(pod):
		return 2
	}
	return 3
}

func (s *simulation) syncDaemonSet(ds *appsv1.DaemonSet) {
	on := map[string]*corev1.Pod{}
	for _, pod := range owned[*corev1.Pod](s, gvrPods, ds) {
		node := cmp.Or(pod.Spec.NodeName, pinnedTo(pod))
		switch {
		case pod.DeletionTimestamp != nil:
			on[node] = pod // its successor waits until it is gone
		case !isActive(pod):
			s.removeNow(podRef(pod))
		default:
			on[node] = pod
		}
	}
	var wanted int32
	for _, node := range all[*corev1.Node](s, gvrNodes, "") {
		wanted++
		if on[node.Name] != nil {
			continue
		}
		pod := s.newPod(ds, gvkDaemonSet, &ds.Spec.Template)
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = templateHash(&ds.Spec.Template)
		pod.Labels["pod-template-generation"] = "1"
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name}}},
			}}},
		}}
		if pod, ok := create(s, gvrPods, pod); ok {
			s.event(ds, normal, "daemonset-controller", "SuccessfulCreate", "Created pod: %s", pod.Name)
		}
	}
	active, ready := counts(owned[*corev1.Pod](s, gvrPods, ds))
	mutateStatus(s, ref{gvrDaemonSets, ds.Namespace, ds.Name}, "kube-controller-manager", func(ds *appsv1.DaemonSet) {
		ds.Status.DesiredNumberScheduled = wanted
		ds.Status.CurrentNumberScheduled = int32(len(active))
		ds.Status.UpdatedNumberScheduled = int32(len(active))
		ds.Status.NumberReady = ready
		ds.Status.NumberAvailable = ready
		ds.Status.NumberUnavailable = max(0, wanted-ready)
		ds.Status.ObservedGeneration = ds.Generation
	})
}

// syncStatefulSet creates pods 0 to n-1, one after the other.
func (s *simulation) syncStatefulSet(sts *appsv1.StatefulSet) {
	if sts.Spec.Selector == nil {
		return
	}
	pods := map[string]*corev1.Pod{}
	for _, pod := range owned[*corev1.Pod](s, gvrPods, sts) {
		pods[pod.Name] = pod
		if pod.DeletionTimestamp == nil && !isActive(pod) {
			s.removeNow(podRef(pod))
		}
	}
	want := int(replicasOf(sts.Spec.Replicas))
	hash := sts.Name + "-" + templateHash(&sts.Spec.Template)
	for i := range want {
		name := fmt.Sprintf("%s-%d", sts.Name, i)
		if pod := pods[name]; pod != nil {
			if isReady(pod) {
				continue
			}
			break
		}
		pod := s.newPod(sts, gvkStatefulSet, &sts.Spec.Template)
		pod.GenerateName, pod.Name = sts.Name+"-", name
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
		pod.Labels[appsv1.StatefulSetPodNameLabel] = name
		pod.Labels[appsv1.PodIndexLabel] = fmt.Sprint(i)
		pod.Spec.Hostname, pod.Spec.Subdomain = name, sts.Spec.ServiceName
		for _, claim := range sts.Spec.VolumeClaimTemplates {
			s.claim(sts, &claim, name)
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + name},
			}})
		}
		if _, ok := create(s, gvrPods, pod); ok {
			s.event(sts, normal, "statefulset-controller", "SuccessfulCreate", "create Pod %s in StatefulSet %s successful", name, sts.Name)
		}
		break
	}
	for name, pod := range pods {
		number, _ := strings.CutPrefix(name, sts.Name+"-")
		ordinal, err := strconv.Atoi(number)
		if err == nil && ordinal >= want && ordinal == len(pods)-1 && pod.DeletionTimestamp == nil {
			s.remove(podRef(pod))
			s.event(sts, normal, "statefulset-controller", "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful", name, sts.Name)
		}
	}
	active, ready := counts(owned[*corev1.Pod](s, gvrPods, sts))
	mutateStatus(s, ref{gvrStatefulSets, sts.Namespace, sts.Name}, "kube-controller-manager", func(sts *appsv1.StatefulSet) {
		n := int32(len(active))
		sts.Status.Replicas, sts.Status.CurrentReplicas, sts.Status.UpdatedReplicas = n, n, n
		sts.Status.ReadyReplicas, sts.Status.AvailableReplicas = ready, ready
		sts.Status.CurrentRevision, sts.Status.UpdateRevision = hash, hash
		sts.Status.ObservedGeneration = sts.Generation
		sts.Status.CollisionCount = ptr(int32(0))
	})
}
