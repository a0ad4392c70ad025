package demo

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

var gvkService = corev1.SchemeGroupVersion.WithKind("Service")

// syncNamespace creates the objects that every namespace has.
func (s *simulation) syncNamespace(ns *corev1.Namespace) {
	if ns.DeletionTimestamp != nil {
		return
	}
	if _, ok := get[fakeapi.Object](s, ref{gvrServiceAccounts, ns.Name, "default"}); !ok {
		create(s, gvrServiceAccounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns.Name}})
	}
	if _, ok := get[fakeapi.Object](s, ref{gvrConfigMaps, ns.Name, "kube-root-ca.crt"}); !ok {
		create(s, gvrConfigMaps, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: "kube-root-ca.crt", Namespace: ns.Name,
				Annotations: map[string]string{"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."},
			},
			Data: map[string]string{"ca.crt": "-----BEGIN CERTIFICATE-----\nThis is a demonstration; there is nothing to verify.\n-----END CERTIFICATE-----\n"},
		})
	}
}

// endpoint is the part of a pod that matters to Services.
type endpoint struct {
	ip             string
	running, ready bool
	going          bool
	labels         string
}

func endpointOf(pod *corev1.Pod) endpoint {
	return endpoint{
		ip: pod.Status.PodIP, running: pod.Status.Phase == corev1.PodRunning, ready: isReady(pod),
		going: pod.DeletionTimestamp != nil, labels: labels.FormatLabels(pod.Labels),
	}
}

// syncService updates the EndpointSlice and the Endpoints of a Service.
func (s *simulation) syncService(svc *corev1.Service) {
	if len(svc.Spec.Selector) == 0 {
		return
	}
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	var pods []*corev1.Pod
	for _, pod := range all[*corev1.Pod](s, gvrPods, svc.Namespace) {
		if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning && selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	s.syncSlice(svc, pods)
	s.syncEndpoints(svc, pods)
}

func (s *simulation) syncSlice(svc *corev1.Service, pods []*corev1.Pod) {
	endpoints := []discoveryv1.Endpoint{}
	for _, pod := range pods {
		going, ready := pod.DeletionTimestamp != nil, isReady(pod)
		endpoints = append(endpoints, discoveryv1.Endpoint{
			Addresses:  []string{pod.Status.PodIP},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(ready && !going), Serving: ptr(ready), Terminating: ptr(going)},
			NodeName:   ptr(pod.Spec.NodeName),
			Zone:       ptr(s.zoneOf(pod.Spec.NodeName)),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	var ports []discoveryv1.EndpointPort
	for _, p := range svc.Spec.Ports {
		ports = append(ports, discoveryv1.EndpointPort{Name: ptr(p.Name), Port: ptr(targetPort(p)), Protocol: ptr(p.Protocol)})
	}
	existing := owned[*discoveryv1.EndpointSlice](s, gvrSlices, svc)
	if len(existing) == 0 {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: svc.Name + "-", Namespace: svc.Namespace, OwnerReferences: controllerRef(svc, gvkService),
				Labels: map[string]string{
					discoveryv1.LabelServiceName: svc.Name,
					discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
				},
				Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: s.now().UTC().Format("2006-01-02T15:04:05Z")},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints, Ports: ports,
		}
		s.manage(slice, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "kube-controller-manager")
		create(s, gvrSlices, slice)
		return
	}
	has := existing[0]
	if equality.Semantic.DeepEqual(has.Endpoints, endpoints) && equality.Semantic.DeepEqual(has.Ports, ports) {
		return
	}
	mutate(s, ref{gvrSlices, has.Namespace, has.Name}, func(slice *discoveryv1.EndpointSlice) {
		slice.Endpoints, slice.Ports = endpoints, ports
		slice.Generation++
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: s.now().UTC().Format("2006-01-02T15:04:05Z")}
	})
}

func targetPort(p corev1.ServicePort) int32 {
	if n := p.TargetPort.IntValue(); n > 0 {
		return int32(n)
	}
	return 8080 // every named port of the catalog
}

// syncEndpoints updates the older form of the EndpointSlice, which is deprecated but
// exists in every cluster.
//
//lint:file-ignore SA1019 clusters have Endpoints, so this one does
func (s *simulation) syncEndpoints(svc *corev1.Service, pods []*corev1.Pod) {
	var subset corev1.EndpointSubset
	for _, pod := range pods {
		address := corev1.EndpointAddress{
			IP: pod.Status.PodIP, NodeName: ptr(pod.Spec.NodeName),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		switch {
		case pod.DeletionTimestamp != nil:
		case isReady(pod):
			subset.Addresses = append(subset.Addresses, address)
		default:
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	for _, p := range svc.Spec.Ports {
		subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: p.Name, Port: targetPort(p), Protocol: p.Protocol})
	}
	var subsets []corev1.EndpointSubset
	if len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
		subsets = []corev1.EndpointSubset{subset}
	}
	r := ref{gvrEndpoints, svc.Namespace, svc.Name}
	if has, ok := get[*corev1.Endpoints](s, r); ok && equality.Semantic.DeepEqual(has.Subsets, subsets) {
		return
	}
	if !mutate(s, r, func(e *corev1.Endpoints) { e.Subsets = subsets }) {
		create(s, gvrEndpoints, &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: svc.Name, Namespace: svc.Namespace, Labels: copyMap(svc.Labels)},
			Subsets:    subsets,
		})
	}
}

// clusterIP allocates an address for a Service.
func (s *simulation) clusterIP() string {
	for {
		ip := fmt.Sprintf("10.96.%d.%d", s.rng.IntN(256), 1+s.rng.IntN(254))
		if !slices.Contains([]string{"10.96.0.1", "10.96.0.10"}, ip) && !s.ips[ip] {
			s.ips[ip] = true
			return ip
		}
	}
}
