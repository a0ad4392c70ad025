package demo

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

var gvkDeployment = appsv1.SchemeGroupVersion.WithKind("Deployment")

const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"

	keptReplicaSets = 3 // default of revisionHistoryLimit
)

// templateHash returns the pod-template-hash of a template.
func templateHash(tmpl *corev1.PodTemplateSpec) string {
	text, _ := json.Marshal(tmpl) // cannot fail for a Kubernetes type
	h := fnv.New32a()
	_, _ = h.Write(text)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// syncDeployment advances the rolling update of a Deployment to its newest
// template.
func (s *simulation) syncDeployment(d *appsv1.Deployment) {
	if d.DeletionTimestamp != nil || d.Spec.Selector == nil {
		return
	}
	sets := owned[*appsv1.ReplicaSet](s, gvrReplicaSets, d)
	newest, old := s.newestSet(d, sets)
	if newest == nil {
		return
	}
	if !d.Spec.Paused {
		s.roll(d, newest, old)
	}
	s.deploymentStatus(d)
	s.dropOldSets(d, newest)
}

func revisionOf(obj metav1.Object) int {
	n, _ := strconv.Atoi(obj.GetAnnotations()[revisionAnnotation])
	return n
}

// newestSet finds or creates the ReplicaSet of the current template.
func (s *simulation) newestSet(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (newest *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	hash := templateHash(&d.Spec.Template)
	highest := 0
	for _, rs := range sets {
		highest = max(highest, revisionOf(rs))
		if rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			newest = rs
		} else {
			old = append(old, rs)
		}
	}
	slices.SortFunc(old, func(a, b *appsv1.ReplicaSet) int { return revisionOf(a) - revisionOf(b) })
	if newest == nil {
		newest = s.newSet(d, hash, highest+1)
		if newest == nil {
			return nil, nil
		}
	} else if revisionOf(newest) < highest { // rolled back to
		s.annotate(ref{gvrReplicaSets, newest.Namespace, newest.Name}, revisionAnnotation, strconv.Itoa(highest+1))
		newest, _ = get[*appsv1.ReplicaSet](s, ref{gvrReplicaSets, newest.Namespace, newest.Name})
		if newest == nil {
			return nil, nil
		}
	}
	s.annotate(ref{gvrDeployments, d.Namespace, d.Name}, revisionAnnotation, newest.Annotations[revisionAnnotation])
	return newest, old
}

func (s *simulation) newSet(d *appsv1.Deployment, hash string, revision int) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + hash, Namespace: d.Namespace,
			Labels: copyMap(d.Spec.Template.Labels),
			Annotations: map[string]string{
				revisionAnnotation: strconv.Itoa(revision),
				desiredAnnotation:  strconv.Itoa(int(replicasOf(d.Spec.Replicas))),
				maxAnnotation:      strconv.Itoa(int(replicasOf(d.Spec.Replicas)) + surge(d)),
			},
			OwnerReferences: controllerRef(d, gvkDeployment),
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr(int32(0)),
			Selector: d.Spec.Selector.DeepCopy(),
			Template: *d.Spec.Template.DeepCopy(),
		},
	}
	rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	rs.Spec.Template.Labels = copyMap(rs.Spec.Template.Labels)
	rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	rs.Spec.Selector.MatchLabels = copyMap(rs.Spec.Selector.MatchLabels)
	rs.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	s.manage(rs, gvkReplicaSet, "kube-controller-manager")
	rs, ok := create(s, gvrReplicaSets, rs)
	if !ok {
		return nil
	}
	return rs
}

func (s *simulation) annotate(r ref, key, value string) {
	if obj, ok := get[fakeapi.Object](s, r); !ok || obj.GetAnnotations()[key] == value {
		return
	}
	mutate(s, r, func(obj fakeapi.Object) {
		annotations := copyMap(obj.GetAnnotations())
		annotations[key] = value
		obj.SetAnnotations(annotations)
	})
}

func surge(d *appsv1.Deployment) int       { return share(d, true) }
func unavailable(d *appsv1.Deployment) int { return share(d, false) }

// share resolves maxSurge or maxUnavailable; one of them has to be positive.
func share(d *appsv1.Deployment, isSurge bool) int {
	value := intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		if isSurge && r.MaxSurge != nil {
			value = *r.MaxSurge
		} else if !isSurge && r.MaxUnavailable != nil {
			value = *r.MaxUnavailable
		}
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(replicasOf(d.Spec.Replicas)), isSurge)
	if err != nil {
		return 1
	}
	return n
}

// roll scales the newest set up and the old ones down as far as the limits allow.
func (s *simulation) roll(d *appsv1.Deployment, newest *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	want := int(replicasOf(d.Spec.Replicas))
	total, available := 0, 0
	for _, rs := range append(slices.Clone(old), newest) {
		total += int(replicasOf(rs.Spec.Replicas))
		available += int(rs.Status.AvailableReplicas)
	}
	has := int(replicasOf(newest.Spec.Replicas))
	if len(old) == 0 || total == has {
		s.scale(d, newest, want)
		return
	}
	if has > want {
		s.scale(d, newest, want)
	} else if up := min(want-has, want+surge(d)-total); up > 0 {
		s.scale(d, newest, has+up)
		has += up
	}

	// Unhealthy pods of old sets do not serve. They can be removed as long as
	// all pods of the newest set may be unavailable.
	floor := want - unavailable(d)
	spare := total - floor - (has - int(newest.Status.AvailableReplicas))
	for i, rs := range old {
		n := int(replicasOf(rs.Spec.Replicas))
		sick := min(n-int(rs.Status.AvailableReplicas), spare)
		if sick > 0 {
			s.scale(d, rs, n-sick)
			spare -= sick
			old[i], _ = get[*appsv1.ReplicaSet](s, ref{gvrReplicaSets, rs.Namespace, rs.Name})
		}
	}
	down := min(available-floor, spare)
	for _, rs := range old {
		if rs == nil || down <= 0 {
			break
		}
		n := int(replicasOf(rs.Spec.Replicas))
		if less := min(n, down); less > 0 {
			s.scale(d, rs, n-less)
			down -= less
		}
	}
}

func (s *simulation) scale(d *appsv1.Deployment, rs *appsv1.ReplicaSet, to int) {
	from := int(replicasOf(rs.Spec.Replicas))
	if from == to {
		return
	}
	direction := "up"
	if to < from {
		direction = "down"
	}
	mutate(s, ref{gvrReplicaSets, rs.Namespace, rs.Name}, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Replicas = ptr(int32(to))
		rs.Generation++
		rs.Annotations = copyMap(rs.Annotations)
		rs.Annotations[desiredAnnotation] = strconv.Itoa(int(replicasOf(d.Spec.Replicas)))
		rs.Annotations[maxAnnotation] = strconv.Itoa(int(replicasOf(d.Spec.Replicas)) + surge(d))
	})
	s.event(d, normal, "deployment-controller", "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, rs.Name, from, to)
}

func (s *simulation) deploymentStatus(d *appsv1.Deployment) {
	hash := templateHash(&d.Spec.Template)
	want := replicasOf(d.Spec.Replicas)
	sets := owned[*appsv1.ReplicaSet](s, gvrReplicaSets, d)
	mutateStatus(s, ref{gvrDeployments, d.Namespace, d.Name}, "kube-controller-manager", func(d *appsv1.Deployment) {
		st := &d.Status
		st.ObservedGeneration = d.Generation
		st.Replicas, st.UpdatedReplicas, st.ReadyReplicas, st.AvailableReplicas = 0, 0, 0, 0
		var newest string
		for _, rs := range sets {
			st.Replicas += rs.Status.Replicas
			st.ReadyReplicas += rs.Status.ReadyReplicas
			st.AvailableReplicas += rs.Status.AvailableReplicas
			if rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
				st.UpdatedReplicas = rs.Status.Replicas
				newest = rs.Name
			}
		}
		st.UnavailableReplicas = max(0, max(want, st.Replicas)-st.AvailableReplicas)
		if int(st.AvailableReplicas) >= int(want)-unavailable(d) {
			s.setDeploymentCondition(d, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.")
		} else {
			s.setDeploymentCondition(d, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
		}
		if st.UpdatedReplicas == want && st.Replicas == want && st.AvailableReplicas == want {
			s.setDeploymentCondition(d, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", newest))
		} else {
			s.setDeploymentCondition(d, appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", fmt.Sprintf("ReplicaSet %q is progressing.", newest))
		}
	})
}

func (s *simulation) setDeploymentCondition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	now := appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: s.stamp(), LastTransitionTime: s.stamp()}
	for i := range d.Status.Conditions {
		if old := &d.Status.Conditions[i]; old.Type == kind {
			if old.Status == status {
				now.LastTransitionTime = old.LastTransitionTime
			}
			if old.Status == status && old.Reason == reason && old.Message == message {
				return
			}
			*old = now
			return
		}
	}
	d.Status.Conditions = append(d.Status.Conditions, now)
}

// dropOldSets keeps the last few empty ReplicaSets to roll back to.
func (s *simulation) dropOldSets(d *appsv1.Deployment, newest *appsv1.ReplicaSet) {
	keep := keptReplicaSets
	if d.Spec.RevisionHistoryLimit != nil {
		keep = int(*d.Spec.RevisionHistoryLimit)
	}
	var empty []*appsv1.ReplicaSet
	for _, rs := range owned[*appsv1.ReplicaSet](s, gvrReplicaSets, d) {
		if rs.UID != newest.UID && replicasOf(rs.Spec.Replicas) == 0 && rs.Status.Replicas == 0 {
			empty = append(empty, rs)
		}
	}
	slices.SortFunc(empty, func(a, b *appsv1.ReplicaSet) int { return revisionOf(a) - revisionOf(b) })
	for _, rs := range empty[:max(0, len(empty)-keep)] {
		s.removeNow(ref{gvrReplicaSets, rs.Namespace, rs.Name})
	}
}
