package demo

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// defect is a defect of an image.
type defect int

const (
	works defect = iota
	cannotPull
	crashes
)

// exit is an unexpected end of a container.
type exit struct {
	code   int32
	reason string
}

var (
	crashed   = exit{1, "Error"}
	oomKilled = exit{137, "OOMKilled"}
)

// crash ends the main container of a pod. The kubelet restarts it, at once the
// first time, then after growing intervals.
func (s *simulation) crash(life *podLife, pod *corev1.Pod, how exit) {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		s.fail(life, how)
		return
	}
	main := mainContainer(pod).Name
	life.epoch++
	var restarts int32
	s.podStatus(life, func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			if cs := &pod.Status.ContainerStatuses[i]; cs.Name == main {
				s.terminateContainer(cs, how.reason, how.code)
				restarts = cs.RestartCount
			}
		}
	})
	if restarts == 0 && life.crashes == 0 && s.broken[mainImage(pod.Spec)] == works {
		s.later(life, s.between(500*time.Millisecond, 2*time.Second), func(pod *corev1.Pod) { s.restart(life, pod, main) })
		return
	}
	backoff := min(10*time.Second<<min(restarts, 5), 5*time.Minute)
	s.later(life, time.Second, func(pod *corev1.Pod) {
		message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", backoff, main, pod.Name, pod.Namespace, pod.UID)
		s.podStatus(life, func(pod *corev1.Pod) {
			for i := range pod.Status.ContainerStatuses {
				if cs := &pod.Status.ContainerStatuses[i]; cs.Name == main && cs.State.Terminated != nil {
					cs.LastTerminationState = cs.State
					cs.State = waiting("CrashLoopBackOff", message)
				}
			}
		})
		s.containerEvent(pod, main, warning, "BackOff", "Back-off restarting failed container %s in pod %s_%s(%s)", main, pod.Name, pod.Namespace, pod.UID)
		s.later(life, backoff, func(pod *corev1.Pod) { s.restart(life, pod, main) })
	})
}

func (s *simulation) restart(life *podLife, pod *corev1.Pod, container string) {
	s.podStatus(life, func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			if cs := &pod.Status.ContainerStatuses[i]; cs.Name == container && cs.State.Terminated != nil {
				cs.LastTerminationState = cs.State
				cs.State = waiting("PodInitializing", "")
			}
		}
	})
	s.containerEvent(pod, container, normal, "Pulled", "Container image %q already present on machine", mainImage(pod.Spec))
	s.run(life, pod, false)
}

// pullFails simulates a kubelet that cannot pull an image.
func (s *simulation) pullFails(life *podLife, pod *corev1.Pod, c corev1.Container, attempt int) {
	set := func(reason, message string) {
		s.podStatus(life, func(pod *corev1.Pod) {
			for i := range pod.Status.ContainerStatuses {
				if cs := &pod.Status.ContainerStatuses[i]; cs.Name == c.Name {
					cs.State = waiting(reason, message)
				}
			}
		})
	}
	s.later(life, s.between(500*time.Millisecond, 2*time.Second), func(pod *corev1.Pod) {
		message := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", c.Image, c.Image, c.Image)
		s.containerEvent(pod, c.Name, warning, "Failed", "Failed to pull image %q: %s", c.Image, message)
		s.containerEvent(pod, c.Name, warning, "Failed", "Error: ErrImagePull")
		set("ErrImagePull", message)
		s.later(life, s.between(10*time.Second, 15*time.Second), func(pod *corev1.Pod) {
			s.containerEvent(pod, c.Name, normal, "BackOff", "Back-off pulling image %q", c.Image)
			s.containerEvent(pod, c.Name, warning, "Failed", "Error: ImagePullBackOff")
			set("ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q", c.Image))
			backoff := min(10*time.Second<<min(attempt, 5), 5*time.Minute)
			s.later(life, backoff, func(pod *corev1.Pod) { s.pull(life, pod, attempt+1) })
		})
	})
}

// finish ends a pod that runs to completion, nearly always successfully.
func (s *simulation) finish(life *podLife, pod *corev1.Pod) {
	if s.chance(0.07) {
		s.fail(life, crashed)
		return
	}
	s.podStatus(life, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodSucceeded
		for i := range pod.Status.ContainerStatuses {
			s.terminateContainer(&pod.Status.ContainerStatuses[i], "Completed", 0)
		}
	})
}

// fail ends a pod permanently.
func (s *simulation) fail(life *podLife, how exit) {
	s.podStatus(life, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		for i := range pod.Status.ContainerStatuses {
			s.terminateContainer(&pod.Status.ContainerStatuses[i], how.reason, how.code)
		}
	})
}

// evict evicts a pod from a node that runs out of memory. The failed pod stays
// until it is cleaned up.
func (s *simulation) evict(pod *corev1.Pod) {
	life := s.lives[pod.UID]
	if life == nil {
		return
	}
	message := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 61484Ki. Container " +
		mainContainer(pod).Name + " was using 812340Ki, request is 128Mi, has larger consumption of memory. "
	s.event(pod, warning, "kubelet, "+pod.Spec.NodeName, "Evicted", "%s", message)
	s.podStatus(life, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		pod.Status.Reason = "Evicted"
		pod.Status.Message = message
		s.setPodCondition(pod, corev1.DisruptionTarget, corev1.ConditionTrue, "TerminationByKubelet", message)
		for i := range pod.Status.ContainerStatuses {
			s.terminateContainer(&pod.Status.ContainerStatuses[i], "Error", 137)
		}
	})
	s.after(s.between(3*time.Minute, 6*time.Minute), func() {
		if now, ok := s.podOf(life); ok && now.Status.Phase == corev1.PodFailed {
			s.removeNow(life.ref)
		}
	})
}
