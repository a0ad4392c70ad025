package demo

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// setPodCondition sets a condition of a pod.
func (s *simulation) setPodCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) {
	now := corev1.PodCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: s.stamp(), ObservedGeneration: pod.Generation,
	}
	for i := range pod.Status.Conditions {
		if old := &pod.Status.Conditions[i]; old.Type == kind {
			if old.Status == status {
				now.LastTransitionTime = old.LastTransitionTime
			}
			*old = now
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, now)
}

// refreshReady updates the ready conditions from the containers.
func (s *simulation) refreshReady(pod *corev1.Pod) {
	var unready []string
	for _, cs := range pod.Status.ContainerStatuses {
		if !cs.Ready {
			unready = append(unready, cs.Name)
		}
	}
	status, reason, message := corev1.ConditionTrue, "", ""
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		status, reason = corev1.ConditionFalse, "PodCompleted"
	case pod.Status.Phase == corev1.PodFailed:
		status, reason = corev1.ConditionFalse, "PodFailed"
	case len(unready) > 0:
		status, reason, message = corev1.ConditionFalse, "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", unready)
	}
	s.setPodCondition(pod, corev1.PodReady, status, reason, message)
	s.setPodCondition(pod, corev1.ContainersReady, status, reason, message)
}

// isReady reports whether a pod is ready.
func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// isActive reports whether a pod counts for its controller.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// mainContainer returns the container that fails, if one does.
func mainContainer(pod *corev1.Pod) corev1.Container {
	if len(pod.Spec.Containers) == 0 {
		return corev1.Container{}
	}
	return pod.Spec.Containers[0]
}

func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	class := corev1.PodQOSBestEffort
	for _, c := range pod.Spec.Containers {
		if len(c.Resources.Requests)+len(c.Resources.Limits) > 0 {
			class = corev1.PodQOSBurstable
		}
	}
	return class
}
