package demo

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kubelets is the state of the scheduler and the kubelets, which handle every pod
// from its creation to its end.
type kubelets struct {
	lives  map[types.UID]*podLife
	load   map[string]int             // pods by node
	images map[string]map[string]bool // pulled, by node
	ips    map[string]bool            // in use
	broken map[string]defect          // by image
}

func (k *kubelets) init() {
	k.lives = map[types.UID]*podLife{}
	k.load = map[string]int{}
	k.images = map[string]map[string]bool{}
	k.ips = map[string]bool{}
	k.broken = map[string]defect{}
}

// podLife is a kubelet's internal state of a pod.
type podLife struct {
	ref
	uid      types.UID
	stage    stage
	epoch    int // tasks of earlier epochs are cancelled
	node, ip string
	crashes  int // still to come
}

type stage int

const (
	fresh stage = iota
	binding
	starting
	running
	terminating
)

// later schedules the next step of a pod, unless its epoch has changed or the pod is
// gone by then.
func (s *simulation) later(life *podLife, d time.Duration, do func(*corev1.Pod)) {
	epoch := life.epoch
	s.after(d, func() {
		if life.epoch != epoch {
			return
		}
		if pod, ok := s.podOf(life); ok {
			do(pod)
		}
	})
}

func (s *simulation) podOf(life *podLife) (*corev1.Pod, bool) {
	pod, ok := get[*corev1.Pod](s, life.ref)
	return pod, ok && pod.UID == life.uid
}

// podStatus changes the status of a pod, unless it has been replaced.
func (s *simulation) podStatus(life *podLife, change func(*corev1.Pod)) {
	mutateStatus(s, life.ref, "kubelet", func(pod *corev1.Pod) {
		if pod.UID == life.uid {
			change(pod)
			s.refreshReady(pod)
		}
	})
}

func (s *simulation) syncPod(pod *corev1.Pod) {
	if len(pod.Spec.Containers) == 0 {
		return // clients may write anything: nothing is validated
	}
	life := s.lives[pod.UID]
	if life == nil {
		life = &podLife{ref: ref{gvrPods, pod.Namespace, pod.Name}, uid: pod.UID}
		s.lives[pod.UID] = life
	}
	if life.node == "" && pod.Spec.NodeName != "" {
		life.node = pod.Spec.NodeName
		s.load[life.node]++
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		life.epoch++ // cancels scheduled tasks
		s.freeIP(life)
	case pod.DeletionTimestamp != nil:
		if life.stage != terminating {
			life.stage = terminating
			life.epoch++
			s.terminate(life, pod)
		}
	case pod.Spec.NodeName == "" && life.stage == fresh:
		life.stage = binding
		s.later(life, s.between(50*time.Millisecond, 400*time.Millisecond), func(pod *corev1.Pod) { s.bind(life, pod) })
	case pod.Spec.NodeName != "" && life.stage < starting:
		life.stage = starting
		s.later(life, s.between(300*time.Millisecond, time.Second), func(pod *corev1.Pod) { s.start(life, pod) })
	}
}

// podGone releases the resources of a pod.
func (s *simulation) podGone(uid types.UID) {
	life := s.lives[uid]
	if life == nil {
		return
	}
	delete(s.lives, uid)
	life.epoch++
	if life.node != "" {
		s.load[life.node]--
	}
	s.freeIP(life)
}

func (s *simulation) freeIP(life *podLife) {
	delete(s.ips, life.ip)
	life.ip = ""
}

// start sets up a pod and pulls its images.
func (s *simulation) start(life *podLife, pod *corev1.Pod) {
	hostIP := s.nodeIP(pod.Spec.NodeName)
	s.podStatus(life, func(pod *corev1.Pod) {
		pod.Status.StartTime = ptr(s.stamp())
		pod.Status.HostIP = hostIP
		pod.Status.HostIPs = []corev1.HostIP{{IP: hostIP}}
		pod.Status.QOSClass = qosClass(pod)
		pod.Status.ContainerStatuses = nil
		for _, c := range pod.Spec.Containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, Started: ptr(false), State: waiting("ContainerCreating", ""),
			})
		}
		s.setPodCondition(pod, corev1.PodInitialized, corev1.ConditionTrue, "", "")
		s.setPodCondition(pod, corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", "")
	})
	s.pull(life, pod, 0)
}

// pull pulls the images that the node does not have.
func (s *simulation) pull(life *podLife, pod *corev1.Pod, attempt int) {
	on := s.images[life.node]
	if on == nil {
		on = map[string]bool{}
		s.images[life.node] = on
	}
	var took time.Duration
	for _, c := range pod.Spec.Containers {
		if on[c.Image] {
			s.containerEvent(pod, c.Name, normal, "Pulled", "Container image %q already present on machine", c.Image)
			continue
		}
		s.containerEvent(pod, c.Name, normal, "Pulling", "Pulling image %q", c.Image)
		if s.broken[c.Image] == cannotPull {
			s.pullFails(life, pod, c, attempt)
			return
		}
		took += s.between(time.Second, 6*time.Second)
	}
	s.later(life, took+s.between(200*time.Millisecond, time.Second), func(pod *corev1.Pod) {
		for _, c := range pod.Spec.Containers {
			if !on[c.Image] {
				on[c.Image] = true
				s.containerEvent(pod, c.Name, normal, "Pulled", "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.",
					c.Image, took.Round(time.Millisecond), took.Round(time.Millisecond), 20_000_000+len(c.Image)*1_234_567)
			}
		}
		s.run(life, pod, true)
	})
}

// run starts the containers of a pod that are not running.
func (s *simulation) run(life *podLife, pod *corev1.Pod, first bool) {
	life.stage = running
	if life.ip == "" {
		life.ip = s.podIP(pod)
	}
	var started []string
	s.podStatus(life, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.PodIP = life.ip
		pod.Status.PodIPs = []corev1.PodIP{{IP: life.ip}}
		s.setPodCondition(pod, corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", "")
		for i := range pod.Status.ContainerStatuses {
			cs := &pod.Status.ContainerStatuses[i]
			if cs.State.Running != nil {
				continue
			}
			started = append(started, cs.Name)
			cs.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.stamp()}}
			cs.ContainerID = "containerd://" + s.hex(64)
			cs.ImageID = imageID(cs.Image)
			cs.Started = ptr(true)
			cs.Ready = readinessProbe(pod, cs.Name) == nil
			if !first {
				cs.RestartCount++
			}
		}
	})
	for _, name := range started {
		s.containerEvent(pod, name, normal, "Created", "Container created")
		s.containerEvent(pod, name, normal, "Started", "Container started")
	}
	s.runs(life, pod)
}

// runs schedules the next steps of a pod that has just started.
func (s *simulation) runs(life *podLife, pod *corev1.Pod) {
	main := mainContainer(pod)
	switch {
	case s.broken[main.Image] == crashes:
		s.later(life, s.between(time.Second, 5*time.Second), func(pod *corev1.Pod) { s.crash(life, pod, crashed) })
	case life.crashes > 0:
		life.crashes--
		s.later(life, s.between(2*time.Second, 8*time.Second), func(pod *corev1.Pod) { s.crash(life, pod, crashed) })
	case pod.Spec.RestartPolicy != corev1.RestartPolicyAlways:
		s.later(life, s.between(8*time.Second, 45*time.Second), func(pod *corev1.Pod) { s.finish(life, pod) })
	default:
		delay := s.between(time.Second, 4*time.Second)
		if p := main.ReadinessProbe; p != nil {
			delay += time.Duration(p.InitialDelaySeconds) * time.Second
		}
		s.later(life, delay, func(*corev1.Pod) {
			s.podStatus(life, func(pod *corev1.Pod) {
				for i := range pod.Status.ContainerStatuses {
					pod.Status.ContainerStatuses[i].Ready = pod.Status.ContainerStatuses[i].State.Running != nil
				}
			})
		})
	}
}

// terminate ends a pod that is being deleted.
func (s *simulation) terminate(life *podLife, pod *corev1.Pod) {
	for _, c := range pod.Spec.Containers {
		if life.stage >= running && pod.Status.Phase == corev1.PodRunning {
			s.containerEvent(pod, c.Name, normal, "Killing", "Stopping container %s", c.Name)
		}
	}
	grace := 30 * time.Second
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		grace = time.Duration(*g) * time.Second
	}
	s.later(life, min(s.between(500*time.Millisecond, 4*time.Second), grace), func(*corev1.Pod) {
		s.podStatus(life, func(pod *corev1.Pod) {
			for i := range pod.Status.ContainerStatuses {
				cs := &pod.Status.ContainerStatuses[i]
				s.terminateContainer(cs, "Completed", 0)
			}
		})
		s.later(life, s.between(200*time.Millisecond, time.Second), func(*corev1.Pod) { s.removeNow(life.ref) })
	})
}

func (s *simulation) terminateContainer(cs *corev1.ContainerStatus, reason string, code int32) {
	if cs.State.Terminated != nil {
		return
	}
	done := &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: s.stamp(), StartedAt: s.stamp(), ContainerID: cs.ContainerID}
	if cs.State.Running != nil {
		done.StartedAt = cs.State.Running.StartedAt
	}
	cs.State = corev1.ContainerState{Terminated: done}
	cs.Ready = false
	cs.Started = ptr(false)
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func readinessProbe(pod *corev1.Pod, container string) *corev1.Probe {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return nil
	}
	return pod.Spec.Containers[i].ReadinessProbe
}

// podIP allocates an address of the node's range.
func (s *simulation) podIP(pod *corev1.Pod) string {
	if pod.Spec.HostNetwork {
		return s.nodeIP(pod.Spec.NodeName)
	}
	for {
		ip := fmt.Sprintf("10.244.%d.%d", s.nodeNumber(pod.Spec.NodeName)%256, 2+s.rng.IntN(250))
		if len(s.ips) > 20_000 { // the range of the node may be full
			ip = fmt.Sprintf("10.%d.%d.%d", 128+s.rng.IntN(64), s.rng.IntN(256), 2+s.rng.IntN(250))
		}
		if !s.ips[ip] {
			s.ips[ip] = true
			return ip
		}
	}
}
