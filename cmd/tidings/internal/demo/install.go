package demo

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// installer is the field manager of installed manifests.
const installer = "kubectl-client-side-apply"

// meta returns the metadata of an object of an app.
func (a app) meta(name string) metav1.ObjectMeta {
	labels := copyMap(a.selector())
	if a.namespace != "kube-system" {
		labels["app.kubernetes.io/part-of"] = a.namespace
		labels["app.kubernetes.io/managed-by"] = "argocd"
	}
	return metav1.ObjectMeta{Name: name, Namespace: a.namespace, Labels: labels}
}

func (a app) selector() map[string]string {
	if a.labels != nil {
		return a.labels
	}
	return map[string]string{"app": a.name, "app.kubernetes.io/name": a.name}
}

// ensureNamespace creates a namespace if it does not exist.
func (s *simulation) ensureNamespace(name string, labels map[string]string) {
	if _, ok := get[*corev1.Namespace](s, ref{gvrNamespaces, "", name}); ok {
		return
	}
	labels = copyMap(labels)
	labels[corev1.LabelMetadataName] = name
	create(s, gvrNamespaces, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	})
}

// install applies the manifests of an app.
func (s *simulation) install(a app) {
	s.ensureNamespace(a.namespace, map[string]string{"team": strings.Split(a.namespace, "-")[0]})
	s.installConfig(a)
	if a.port != 0 {
		s.installService(a)
	}
	tmpl := s.template(a)
	selector := &metav1.LabelSelector{MatchLabels: a.selector()}
	om := a.meta(a.name)
	switch a.kind {
	case "DaemonSet":
		ds := &appsv1.DaemonSet{ObjectMeta: om, Spec: appsv1.DaemonSetSpec{
			Selector: selector, Template: tmpl, RevisionHistoryLimit: ptr(int32(10)),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr(intstr.FromInt32(1)), MaxSurge: ptr(intstr.FromInt32(0))}},
		}}
		s.manage(ds, gvkDaemonSet, installer)
		create(s, gvrDaemonSets, ds)
	case "StatefulSet":
		sts := &appsv1.StatefulSet{ObjectMeta: om, Spec: appsv1.StatefulSetSpec{
			Replicas: ptr(int32(a.replicas)), Selector: selector, Template: tmpl, ServiceName: a.name,
			PodManagementPolicy: appsv1.OrderedReadyPodManagement, RevisionHistoryLimit: ptr(int32(10)),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
		}}
		if a.storage != "" {
			sts.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					StorageClassName: ptr("standard"), VolumeMode: ptr(corev1.PersistentVolumeFilesystem),
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse(a.storage)}},
				},
			}}
		}
		s.manage(sts, gvkStatefulSet, installer)
		create(s, gvrStatefulSets, sts)
	case "CronJob":
		tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
		cron := &batchv1.CronJob{ObjectMeta: om, Spec: batchv1.CronJobSpec{
			Schedule: a.schedule, ConcurrencyPolicy: batchv1.AllowConcurrent, Suspend: ptr(false),
			SuccessfulJobsHistoryLimit: ptr(int32(3)), FailedJobsHistoryLimit: ptr(int32(1)),
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: a.selector()},
				Spec:       batchv1.JobSpec{BackoffLimit: ptr(int32(2)), Completions: ptr(int32(1)), Parallelism: ptr(int32(1)), Template: tmpl},
			},
		}}
		s.manage(cron, gvkCronJob, installer)
		create(s, gvrCronJobs, cron)
	default:
		d := &appsv1.Deployment{ObjectMeta: om, Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(a.replicas)), Selector: selector, Template: tmpl,
			RevisionHistoryLimit: ptr(int32(keptReplicaSets)), ProgressDeadlineSeconds: ptr(int32(600)),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr(intstr.FromString("25%")), MaxSurge: ptr(intstr.FromString("25%"))}},
		}}
		s.manage(d, gvkDeployment, installer)
		create(s, gvrDeployments, d)
	}
}

// installConfig creates the ConfigMap, Secret and ServiceAccount of an app.
func (s *simulation) installConfig(a app) {
	create(s, gvrServiceAccounts, &corev1.ServiceAccount{ObjectMeta: a.meta(a.name)})
	if a.config != nil {
		cm := &corev1.ConfigMap{ObjectMeta: a.meta(a.name), Data: copyMap(a.config)}
		s.manage(cm, corev1.SchemeGroupVersion.WithKind("ConfigMap"), installer)
		create(s, gvrConfigMaps, cm)
	}
	if a.secret {
		create(s, gvrSecrets, &corev1.Secret{
			ObjectMeta: a.meta(a.name), Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{"username": []byte(a.name), "password": []byte(s.suffix(24))},
		})
	}
}

func (s *simulation) installService(a app) {
	svc := &corev1.Service{ObjectMeta: a.meta(a.name), Spec: corev1.ServiceSpec{
		Selector: a.selector(), Type: corev1.ServiceTypeClusterIP, ClusterIP: s.clusterIP(),
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack),
		SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: ptr(corev1.ServiceInternalTrafficPolicyCluster),
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(a.port)}},
	}}
	svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	if a.name == "coredns" { // clients know it under its old name
		svc.Name, svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "kube-dns", "10.96.0.10", []string{"10.96.0.10"}
		svc.Spec.Ports = []corev1.ServicePort{
			{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(53)},
			{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, TargetPort: intstr.FromInt32(53)},
			{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9153, TargetPort: intstr.FromInt32(9153)},
		}
	}
	s.manage(svc, gvkService, installer)
	create(s, gvrServices, svc)
	if a.host != "" {
		create(s, gvrIngresses, s.ingress(a))
	}
	if a.replicas > 2 {
		create(s, gvrPDBs, &policyv1.PodDisruptionBudget{ObjectMeta: a.meta(a.name), Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr(intstr.FromString("30%")), Selector: &metav1.LabelSelector{MatchLabels: a.selector()},
		}})
	}
}

func (s *simulation) ingress(a app) *networkingv1.Ingress {
	ing := &networkingv1.Ingress{ObjectMeta: a.meta(a.name), Spec: networkingv1.IngressSpec{
		IngressClassName: ptr("nginx"),
		TLS:              []networkingv1.IngressTLS{{Hosts: []string{a.host}, SecretName: a.name + "-tls"}},
		Rules: []networkingv1.IngressRule{{Host: a.host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: ptr(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: a.name, Port: networkingv1.ServiceBackendPort{Name: "http"}},
			}}},
		}}}},
	}}
	ing.Annotations = map[string]string{"cert-manager.io/cluster-issuer": "letsencrypt"}
	ing.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: "lb-" + s.hex(8) + ".eu-west-1.elb.example.com"}}
	return ing
}

// template returns the pod template of an app.
func (s *simulation) template(a app) corev1.PodTemplateSpec {
	main := corev1.Container{
		Name: a.name, Image: a.image + ":" + a.tags[0], ImagePullPolicy: corev1.PullIfNotPresent, Args: a.args,
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(a.cpu), corev1.ResourceMemory: apiresource.MustParse(a.memory)},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: apiresource.MustParse(a.memory)},
		},
	}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
	}
	main.Env = []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "NODE_NAME", ValueFrom: field("spec.nodeName")}}
	for _, kv := range a.env {
		k, v, _ := strings.Cut(kv, "=")
		main.Env = append(main.Env, corev1.EnvVar{Name: k, Value: v})
	}
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: corev1.DefaultSchedulerName,
		ServiceAccountName: a.name, DeprecatedServiceAccount: a.name, HostNetwork: a.hostNetwork,
		SecurityContext: &corev1.PodSecurityContext{}, TerminationGracePeriodSeconds: ptr(int64(30)),
	}
	if a.port != 0 {
		main.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: a.port, Protocol: corev1.ProtocolTCP}}
		probe := func(path string, delay int32) *corev1.Probe {
			return &corev1.Probe{
				ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
				InitialDelaySeconds: delay, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
			}
		}
		main.LivenessProbe, main.ReadinessProbe = probe("/healthz", 5), probe("/readyz", 2)
	}
	annotations := map[string]string{"prometheus.io/scrape": "true"}
	if a.config != nil {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/etc/config"})
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: a.name}, DefaultMode: ptr(int32(420))}}})
		annotations["checksum/config"] = checksum(a.config)
	}
	if a.secret {
		for _, key := range []string{"username", "password"} {
			main.Env = append(main.Env, corev1.EnvVar{Name: strings.ToUpper(key), ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: a.name}, Key: key}}})
		}
	}
	if a.storage != "" {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	}
	spec.Containers = []corev1.Container{main}
	if a.sidecar {
		spec.Containers = append(spec.Containers, corev1.Container{
			Name: "proxy", Image: "docker.io/envoyproxy/envoy:v1.35.3", ImagePullPolicy: corev1.PullIfNotPresent,
			Args:                   []string{"--service-cluster", a.name, "--config-path", "/etc/envoy/envoy.yaml", "--concurrency", "2"},
			TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("20m"), corev1.ResourceMemory: apiresource.MustParse("48Mi")}},
		})
	}
	if a.kind == "DaemonSet" {
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: a.selector(), Annotations: annotations}, Spec: spec}
}

// checksum returns a checksum of a configuration, so pods restart when it changes.
func checksum(config map[string]string) string {
	var all strings.Builder
	for _, k := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&all, "%s=%s\n", k, config[k])
	}
	return sha(all.String())
}

// claim creates the volume of a replica of a StatefulSet, and the claim to it.
func (s *simulation) claim(sts *appsv1.StatefulSet, tmpl *corev1.PersistentVolumeClaim, pod string) {
	r := ref{gvrPVCs, sts.Namespace, tmpl.Name + "-" + pod}
	if _, ok := get[*corev1.PersistentVolumeClaim](s, r); ok {
		return // kept from an earlier pod of that name
	}
	uid := s.uid()
	volume := "pvc-" + string(uid)
	size := tmpl.Spec.Resources.Requests[corev1.ResourceStorage]
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: r.name, Namespace: r.namespace, Labels: copyMap(sts.Spec.Selector.MatchLabels), Finalizers: []string{"kubernetes.io/pvc-protection"}},
		Spec:       *tmpl.Spec.DeepCopy(),
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, AccessModes: tmpl.Spec.AccessModes, Capacity: corev1.ResourceList{corev1.ResourceStorage: size},
		},
	}
	claim.Spec.VolumeName = volume
	claim, _ = create(s, gvrPVCs, claim)
	create(s, gvrPVs, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume, Finalizers: []string{"kubernetes.io/pv-protection"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: size}, AccessModes: tmpl.Spec.AccessModes,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: r.namespace, Name: r.name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: storageClass(tmpl),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", FSType: "ext4", VolumeHandle: "vol-" + s.hex(17)}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	})
}

func storageClass(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return "standard"
}

// sha returns a digest in the form of annotations and image IDs.
func sha(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// imageID returns the digest of an image.
func imageID(image string) string {
	repository, _ := imageParts(image)
	return repository + "@sha256:" + sha(image)
}
