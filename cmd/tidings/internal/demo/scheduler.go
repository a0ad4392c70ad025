package demo

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// bind schedules a pod.
func (s *simulation) bind(life *podLife, pod *corev1.Pod) {
	node := s.chooseNode(pod)
	if node == "" {
		message := fmt.Sprintf("0/%d nodes are available: no node fits. preemption: not eligible due to preemptionPolicy=PreemptLowerPriority.", len(all[*corev1.Node](s, gvrNodes, "")))
		mutateStatus(s, life.ref, "kube-scheduler", func(pod *corev1.Pod) {
			s.setPodCondition(pod, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, message)
		})
		s.event(pod, warning, "default-scheduler", "FailedScheduling", "%s", message)
		s.later(life, s.between(10*time.Second, 30*time.Second), func(pod *corev1.Pod) { s.bind(life, pod) })
		return
	}
	mutate(s, life.ref, func(pod *corev1.Pod) {
		pod.Spec.NodeName = node
		s.setPodCondition(pod, corev1.PodScheduled, corev1.ConditionTrue, "", "")
	})
	s.event(pod, normal, "default-scheduler", "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
}

// chooseNode returns the node that a DaemonSet's pod is pinned to, otherwise the
// emptier of two random nodes.
func (s *simulation) chooseNode(pod *corev1.Pod) string {
	wanted := pinnedTo(pod)
	var fitting []string
	for _, node := range all[*corev1.Node](s, gvrNodes, "") {
		if wanted == node.Name || wanted == "" && schedulable(node) {
			fitting = append(fitting, node.Name)
		}
	}
	a, ok := pick(s, fitting)
	if !ok {
		return ""
	}
	if b, _ := pick(s, fitting); s.load[b] < s.load[a] {
		return b
	}
	return a
}

// pinnedTo returns the node that a DaemonSet has pinned a pod to.
func pinnedTo(pod *corev1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == "metadata.name" && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return ""
}
