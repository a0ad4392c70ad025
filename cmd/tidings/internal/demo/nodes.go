package demo

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cloud provides the nodes.
type cloud struct {
	nodes   int  // created so far
	beating bool // nodes send heartbeats
	silent  map[string]bool
}

var (
	zones   = []string{"eu-west-1a", "eu-west-1b", "eu-west-1c"}
	gvkNode = corev1.SchemeGroupVersion.WithKind("Node")
)

const (
	controlPlane   = "control-plane-1"
	nodeLeases     = "kube-node-lease"
	kubeletVersion = "v1.36.0"
)

// bootNodes creates the control plane and the first nodes.
func (s *simulation) bootNodes() {
	s.silent = map[string]bool{}
	create(s, gvrStorageClasses, &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       "ebs.csi.aws.com",
		ReclaimPolicy:     ptr(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	s.addNode(controlPlane)
	for range s.w.Nodes - 1 {
		s.addNode("")
	}
}

// addNode adds a node. It becomes ready a little later.
func (s *simulation) addNode(name string) {
	s.nodes++
	n := s.nodes
	zone := zones[n%len(zones)]
	if name == "" {
		name = fmt.Sprintf("worker-%c-%s", zone[len(zone)-1], s.suffix(5))
	}
	ip := fmt.Sprintf("10.0.%d.%d", 16*(1+n%len(zones)), n%250+4)
	cidr := fmt.Sprintf("10.244.%d.0/24", n%256)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelHostname: name,
				corev1.LabelInstanceTypeStable: "m6i.2xlarge", corev1.LabelTopologyRegion: "eu-west-1", corev1.LabelTopologyZone: zone,
				"node-role.kubernetes.io/worker": "",
			},
			Annotations: map[string]string{
				"node.alpha.kubernetes.io/ttl":                           "0",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}, ProviderID: "aws:///" + zone + "/i-" + s.hex(17)},
	}
	if name == controlPlane {
		delete(node.Labels, "node-role.kubernetes.io/worker")
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
		node.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	}
	s.manage(node, gvkNode, "kubelet")
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: apiresource.MustParse("8"), corev1.ResourceMemory: apiresource.MustParse("32386540Ki"),
		corev1.ResourceEphemeralStorage: apiresource.MustParse("83873772Ki"), corev1.ResourcePods: apiresource.MustParse("110"),
		"hugepages-1Gi": apiresource.MustParse("0"), "hugepages-2Mi": apiresource.MustParse("0"),
	}
	allocatable := capacity.DeepCopy()
	allocatable[corev1.ResourceCPU] = apiresource.MustParse("7910m")
	allocatable[corev1.ResourceMemory] = apiresource.MustParse("31482348Ki")
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: allocatable,
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: name}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: s.hex(32), SystemUUID: string(s.uid()), BootID: string(s.uid()), KernelVersion: "6.12.40-63.114.amzn2023.x86_64",
			OSImage: "Amazon Linux 2023", ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: kubeletVersion,
			OperatingSystem: "linux", Architecture: "amd64",
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
	}
	s.setNodeConditions(node, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized")
	node, ok := create(s, gvrNodes, node)
	if !ok {
		return
	}
	s.event(node, normal, "kubelet, "+name, "Starting", "Starting kubelet.")
	s.event(node, normal, "node-controller", "RegisteredNode", "Node %s event: Registered Node %s in Controller", name, name)
	create(s, gvrLeases, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: nodeLeases, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr(int32(40)), RenewTime: ptr(s.microStamp())},
	})
	if s.beating {
		s.beat(name)
	}
	s.after(s.between(10*time.Second, 25*time.Second), func() { s.nodeReady(name) })
}

func (s *simulation) nodeReady(name string) {
	var node *corev1.Node
	if s.nodeStatus(name, func(n *corev1.Node) {
		s.setNodeConditions(n, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
		node = n
	}) {
		s.event(node, normal, "kubelet, "+name, "NodeReady", "Node %s status is now: NodeReady", name)
	}
}

func (s *simulation) nodeStatus(name string, change func(*corev1.Node)) bool {
	return mutateStatus(s, ref{gvrNodes, "", name}, "kubelet", change)
}

func (s *simulation) setNodeConditions(node *corev1.Node, ready corev1.ConditionStatus, reason, message string) {
	unknown := ready == corev1.ConditionUnknown
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: ready, Reason: reason, Message: message},
	} {
		if unknown { // the kubelet is silent
			c.Status, c.Reason, c.Message = ready, reason, message
		}
		c.LastHeartbeatTime, c.LastTransitionTime = s.stamp(), s.stamp()
		i := slices.IndexFunc(node.Status.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
		if i < 0 {
			node.Status.Conditions = append(node.Status.Conditions, c)
			continue
		}
		old := &node.Status.Conditions[i]
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		if unknown {
			c.LastHeartbeatTime = old.LastHeartbeatTime
		}
		*old = c
	}
}

// schedulable reports whether new pods may be scheduled to a node.
func schedulable(node *corev1.Node) bool {
	return nodeIsReady(node) && !node.Spec.Unschedulable && len(node.Spec.Taints) == 0
}

func nodeIsReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// syncNode creates the static pods of the control plane, which its kubelet runs
// from files.
func (s *simulation) syncNode(node *corev1.Node) {
	if node.Name != controlPlane || !nodeIsReady(node) {
		return
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if _, ok := get[*corev1.Pod](s, ref{gvrPods, metav1.NamespaceSystem, name + "-" + node.Name}); ok {
			continue
		}
		image := "registry.k8s.io/" + name + ":" + kubeletVersion
		if name == "etcd" {
			image = "registry.k8s.io/etcd:3.6.8-0"
		}
		digest := sha(image)[:32]
		create(s, gvrPods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name + "-" + node.Name, Namespace: metav1.NamespaceSystem, OwnerReferences: controllerRef(node, gvkNode),
				Labels: map[string]string{"component": name, "tier": "control-plane"},
				Annotations: map[string]string{
					"kubernetes.io/config.hash": digest, "kubernetes.io/config.mirror": digest, "kubernetes.io/config.source": "file",
				},
			},
			Spec: corev1.PodSpec{
				NodeName: node.Name, HostNetwork: true, Priority: ptr(int32(2000001000)), PriorityClassName: "system-node-critical",
				RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: corev1.DefaultSchedulerName,
				TerminationGracePeriodSeconds: ptr(int64(30)), SecurityContext: &corev1.PodSecurityContext{},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
				Containers: []corev1.Container{{
					Name: name, Image: image, Command: []string{name}, ImagePullPolicy: corev1.PullIfNotPresent,
					TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("100m")}},
				}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		})
	}
}

// nodeGone cleans up after a deleted node.
func (s *simulation) nodeGone(node *corev1.Node) {
	delete(s.images, node.Name)
	delete(s.silent, node.Name)
	s.removeNow(ref{gvrLeases, nodeLeases, node.Name})
	for _, pod := range all[*corev1.Pod](s, gvrPods, "") {
		if pod.Spec.NodeName == node.Name || pinnedTo(pod) == node.Name {
			s.removeNow(podRef(pod))
		}
	}
}

func (s *simulation) nodeIP(name string) string {
	if node, ok := get[*corev1.Node](s, ref{gvrNodes, "", name}); ok && len(node.Status.Addresses) > 0 {
		return node.Status.Addresses[0].Address
	}
	return ""
}

func (s *simulation) zoneOf(name string) string {
	if node, ok := get[*corev1.Node](s, ref{gvrNodes, "", name}); ok {
		return node.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

// nodeNumber returns the third byte of the node's range of pod addresses.
func (s *simulation) nodeNumber(name string) int {
	n := 0
	if node, ok := get[*corev1.Node](s, ref{gvrNodes, "", name}); ok {
		_, _ = fmt.Sscanf(node.Spec.PodCIDR, "10.244.%d.", &n) // 0 for a node that is not ours
	}
	return n
}

// beginHeartbeats starts the heartbeats of all nodes.
func (s *simulation) beginHeartbeats() {
	s.beating = true
	for _, node := range all[*corev1.Node](s, gvrNodes, "") {
		s.beat(node.Name)
	}
}

// beat renews a node's lease every ten seconds, and its status every five minutes,
// as long as the node exists.
func (s *simulation) beat(name string) {
	uid := func() (uid any) {
		if node, ok := get[*corev1.Node](s, ref{gvrNodes, "", name}); ok {
			return node.UID
		}
		return nil
	}
	mine := uid()
	var again func(n int)
	again = func(n int) {
		if uid() != mine {
			return
		}
		if !s.silent[name] {
			mutate(s, ref{gvrLeases, nodeLeases, name}, func(l *coordinationv1.Lease) { l.Spec.RenewTime = ptr(s.microStamp()) })
			if n%30 == 29 {
				s.nodeStatus(name, func(node *corev1.Node) {
					for i := range node.Status.Conditions {
						node.Status.Conditions[i].LastHeartbeatTime = s.stamp()
					}
				})
			}
		}
		s.after(10*time.Second, func() { again(n + 1) })
	}
	s.after(s.between(0, 10*time.Second), func() { again(s.rng.IntN(30)) })
}

// loseNode makes a node unreachable for a while.
func (s *simulation) loseNode(node *corev1.Node) {
	s.silent[node.Name] = true
	s.nodeStatus(node.Name, func(n *corev1.Node) {
		s.setNodeConditions(n, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
	})
	s.event(node, normal, "node-controller", "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	taint := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: ptr(s.stamp())}
	mutate(s, ref{gvrNodes, "", node.Name}, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) })
	for _, pod := range s.markPods(node.Name, func(pod *corev1.Pod) {
		s.setPodCondition(pod, corev1.PodReady, corev1.ConditionFalse, "NodeNotReady", "")
	}) {
		s.event(pod, warning, "node-controller", "NodeNotReady", "Node is not ready")
	}
	s.after(s.between(40*time.Second, 100*time.Second), func() {
		delete(s.silent, node.Name)
		mutate(s, ref{gvrNodes, "", node.Name}, func(n *corev1.Node) {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
		})
		s.nodeReady(node.Name)
		s.markPods(node.Name, s.refreshReady)
	})
}

func (s *simulation) markPods(node string, change func(*corev1.Pod)) (marked []*corev1.Pod) {
	for _, pod := range all[*corev1.Pod](s, gvrPods, "") {
		if pod.Spec.NodeName == node && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			mutateStatus(s, podRef(pod), "kubelet", change)
			marked = append(marked, pod)
		}
	}
	return marked
}

// replaceNode adds a node, and drains and removes another one.
func (s *simulation) replaceNode(node *corev1.Node) {
	s.addNode("")
	r := ref{gvrNodes, "", node.Name}
	mutate(s, r, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: ptr(s.stamp())})
	})
	s.event(node, normal, "kubelet, "+node.Name, "NodeNotSchedulable", "Node %s status is now: NodeNotSchedulable", node.Name)
	s.after(s.between(20*time.Second, 40*time.Second), func() {
		for _, pod := range all[*corev1.Pod](s, gvrPods, "") {
			owner := metav1.GetControllerOf(pod)
			if pod.Spec.NodeName == node.Name && owner != nil && owner.Kind != "DaemonSet" && owner.Kind != "Node" {
				s.remove(podRef(pod))
			}
		}
		s.after(s.between(30*time.Second, time.Minute), func() {
			s.event(node, normal, "node-controller", "RemovingNode", "Node %s event: Removing Node %s from Controller", node.Name, node.Name)
			s.removeNow(r)
		})
	})
}
