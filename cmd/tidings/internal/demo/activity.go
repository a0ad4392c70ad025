package demo

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// activity is what people and accidents do to the cluster.
type activity struct {
	tags    map[string][]string // working ones, by image repository
	base    map[ref]int32       // initial replicas of a Deployment
	busy    map[ref]bool        // Deployments with a rollout to be reverted
	ticking map[types.UID]bool  // CronJobs that are scheduled
	reviews int                 // preview environments made so far
}

func (p *activity) init() {
	p.tags = map[string][]string{}
	p.base = map[ref]int32{}
	p.busy = map[ref]bool{}
	p.ticking = map[types.UID]bool{}
}

// beginActivity schedules all activity. Its rate is proportional to the number of
// pods.
func (s *simulation) beginActivity() {
	for _, a := range s.catalog() {
		if a.mayFail {
			s.tags[a.image] = a.tags
		}
	}
	for _, d := range all[*appsv1.Deployment](s, gvrDeployments, "") {
		if s.isOurs(d) {
			s.activity.base[ref{gvrDeployments, d.Namespace, d.Name}] = replicasOf(d.Spec.Replicas)
		}
	}
	size := float64(s.w.Pods) / 200
	every := func(d time.Duration) time.Duration { return max(time.Duration(float64(d)/size), 10*time.Millisecond) }
	s.often(every(25*time.Second), s.autoscale)
	s.often(every(40*time.Second), s.crashSomething)
	s.often(every(45*time.Second), s.changeConfig)
	s.often(every(75*time.Second), s.deleteSomething)
	s.often(every(150*time.Second), s.rollOut)
	s.often(every(6*time.Minute), s.evictSomething)
	s.often(every(8*time.Minute), s.breakSomething)
	s.often(every(6*time.Minute), s.previewEnvironment)
	s.often(every(5*time.Minute), s.migrate)
	s.often(12*time.Minute, s.troubleNode)
	s.after(time.Minute, s.expireEvents)
}

// isOurs reports whether activity may change a Deployment.
func (s *simulation) isOurs(d *appsv1.Deployment) bool {
	repository, _ := imageParts(mainImage(d.Spec.Template.Spec))
	return len(s.tags[repository]) > 0
}

func mainImage(spec corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return ""
	}
	return spec.Containers[0].Image
}

// idleDeployment returns a random Deployment of ours that is complete and not busy.
func (s *simulation) idleDeployment() (*appsv1.Deployment, ref, bool) {
	var idle []*appsv1.Deployment
	for _, d := range all[*appsv1.Deployment](s, gvrDeployments, "") {
		r := ref{gvrDeployments, d.Namespace, d.Name}
		if _, known := s.activity.base[r]; known && s.isOurs(d) && !s.busy[r] && d.Status.AvailableReplicas == replicasOf(d.Spec.Replicas) {
			idle = append(idle, d)
		}
	}
	d, ok := pick(s, idle)
	if !ok {
		return nil, ref{}, false
	}
	return d, ref{gvrDeployments, d.Namespace, d.Name}, true
}

func (s *simulation) setImage(r ref, image string) {
	mutate(s, r, func(d *appsv1.Deployment) {
		if mainImage(d.Spec.Template.Spec) == "" {
			return
		}
		d.Spec.Template.Spec.Containers[0].Image = image
		d.Generation++
		d.Annotations = copyMap(d.Annotations)
		d.Annotations["kubernetes.io/change-cause"] = "image updated to " + image
		s.manage(d, gvkDeployment, "argocd-controller")
	})
}

// rollOut rolls out the next version of a Deployment.
func (s *simulation) rollOut() {
	d, r, ok := s.idleDeployment()
	if !ok {
		return
	}
	repository, tag := imageParts(mainImage(d.Spec.Template.Spec))
	tags := s.tags[repository]
	if len(tags) == 0 {
		return
	}
	s.setImage(r, repository+":"+tags[(slices.Index(tags, tag)+1)%len(tags)])
}

// breakSomething rolls out a broken version and reverts it after a while.
func (s *simulation) breakSomething() {
	d, r, ok := s.idleDeployment()
	if !ok {
		return
	}
	good := mainImage(d.Spec.Template.Spec)
	repository, tag := imageParts(good)
	bad := repository + ":" + tag + "-rc." + strconv.Itoa(1+s.rng.IntN(9))
	s.broken[bad] = crashes
	if s.chance(0.4) {
		s.broken[bad] = cannotPull
	}
	s.busy[r] = true
	s.setImage(r, bad)
	s.after(s.between(time.Minute, 3*time.Minute), func() {
		delete(s.busy, r)
		if d, ok := get[*appsv1.Deployment](s, r); ok && mainImage(d.Spec.Template.Spec) == bad {
			s.setImage(r, good)
		}
		s.after(10*time.Minute, func() { delete(s.broken, bad) })
	})
}

// autoscale is the horizontal autoscaler: replicas vary around their initial
// number.
func (s *simulation) autoscale() {
	d, r, ok := s.idleDeployment()
	if !ok {
		return
	}
	base, now := s.activity.base[r], replicasOf(d.Spec.Replicas)
	step := max(1, base/10)
	if s.chance(0.5) {
		step = -step
	}
	to := min(max(now+step, max(1, base*2/3)), base*4/3+1)
	if to == now {
		return
	}
	mutate(s, r, func(d *appsv1.Deployment) {
		d.Spec.Replicas = &to
		d.Generation++
	})
}

// somePod returns a random ready pod of ours.
func (s *simulation) somePod() (*corev1.Pod, bool) {
	var pods []*corev1.Pod
	for _, pod := range all[*corev1.Pod](s, gvrPods, "") {
		owner := metav1.GetControllerOf(pod)
		repository, _ := imageParts(mainImage(pod.Spec))
		if owner != nil && owner.Kind == "ReplicaSet" && len(s.tags[repository]) > 0 && pod.DeletionTimestamp == nil && isReady(pod) {
			pods = append(pods, pod)
		}
	}
	return pick(s, pods)
}

// crashSomething crashes a pod: mostly once, sometimes several times before it
// recovers.
func (s *simulation) crashSomething() {
	pod, ok := s.somePod()
	if !ok {
		return
	}
	life := s.lives[pod.UID]
	if life == nil {
		return
	}
	how := crashed
	if s.chance(0.4) {
		how = oomKilled
	}
	if s.chance(0.3) {
		life.crashes = 2 + s.rng.IntN(3)
	}
	s.crash(life, pod, how)
}

func (s *simulation) evictSomething() {
	if pod, ok := s.somePod(); ok {
		s.evict(pod)
	}
}

func (s *simulation) deleteSomething() {
	if pod, ok := s.somePod(); ok {
		s.remove(podRef(pod))
	}
}

// changeConfig edits a ConfigMap, as a person or a controller does.
func (s *simulation) changeConfig() {
	r := ref{gvrConfigMaps, "monitoring", "rules"}
	rules := func(cm *corev1.ConfigMap) {
		cm.Data["alerts.yml"] = fmt.Sprintf("groups:\n- name: shop\n  rules:\n  - alert: HighErrorRate\n    expr: rate(http_errors_total[5m]) > %0.3f\n    for: %dm\n", 0.01+s.rng.Float64()/20, 1+s.rng.IntN(10))
	}
	if s.chance(0.5) {
		r = ref{gvrConfigMaps, "shop", "frontend"}
		rules = func(cm *corev1.ConfigMap) {
			cm.Data = copyMap(cm.Data)
			cm.Data["banner"] = fmt.Sprintf("Free shipping from %d €", 10+5*s.rng.IntN(10))
		}
	}
	if mutate(s, r, rules) {
		return
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: r.name, Namespace: r.namespace}, Data: map[string]string{}}
	rules(cm)
	s.manage(cm, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "kubectl-edit")
	create(s, gvrConfigMaps, cm)
}

// previewEnvironment creates a namespace with a copy of the frontend, and deletes
// it after a few minutes.
func (s *simulation) previewEnvironment() {
	s.reviews++
	name := fmt.Sprintf("preview-%d", 1000+s.reviews)
	s.ensureNamespace(name, map[string]string{"team": "shop", "purpose": "preview"})
	image := "registry.example.com/shop/frontend"
	for _, part := range []string{"frontend", "catalog"} {
		a := app{
			namespace: name, name: part, image: image, tags: []string{"pr-" + strconv.Itoa(1000+s.reviews)},
			replicas: 1, port: 8080, cpu: "50m", memory: "128Mi", config: map[string]string{"theme": "preview"},
		}
		s.install(a)
	}
	s.after(s.between(4*time.Minute, 9*time.Minute), func() { s.closeNamespace(name) })
}

// closeNamespace deletes a namespace as a controller does: it is terminating until
// its pods are gone.
func (s *simulation) closeNamespace(name string) {
	mutateStatus(s, ref{gvrNamespaces, "", name}, "kube-controller-manager", func(ns *corev1.Namespace) {
		ns.DeletionTimestamp = ptr(s.stamp())
		ns.Status.Phase = corev1.NamespaceTerminating
	})
	for _, d := range all[*appsv1.Deployment](s, gvrDeployments, name) {
		s.removeNow(ref{gvrDeployments, d.Namespace, d.Name})
	}
	for _, svc := range all[*corev1.Service](s, gvrServices, name) {
		s.removeNow(ref{gvrServices, svc.Namespace, svc.Name})
	}
	var wait func()
	wait = func() {
		if len(all[*corev1.Pod](s, gvrPods, name)) > 0 {
			s.after(2*time.Second, wait)
			return
		}
		s.remove(ref{gvrNamespaces, "", name})
	}
	s.after(5*time.Second, wait)
}

// migrate creates a Job with several parallel pods.
func (s *simulation) migrate() {
	a := app{namespace: "payments", name: "db-migrate", image: "registry.example.com/payments/db-migrate", tags: []string{"1.0.0"}, kind: "Job", cpu: "100m", memory: "128Mi"}
	if _, ok := get[*corev1.Namespace](s, ref{gvrNamespaces, "", a.namespace}); !ok {
		return
	}
	tmpl := s.template(a)
	tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
	tmpl.Spec.ServiceAccountName, tmpl.Spec.DeprecatedServiceAccount = "default", "default"
	tmpl.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: apiresource.MustParse("256Mi")}
	job := &batchv1.Job{
		ObjectMeta: a.meta("db-migrate-" + s.suffix(5)),
		Spec: batchv1.JobSpec{
			Completions: ptr(int32(3)), Parallelism: ptr(int32(2)), BackoffLimit: ptr(int32(2)), TTLSecondsAfterFinished: ptr(int32(180)),
			CompletionMode: ptr(batchv1.NonIndexedCompletion), Suspend: ptr(false), Template: tmpl,
		},
	}
	s.manage(job, gvkJob, "argocd-controller")
	create(s, gvrJobs, job)
}

// troubleNode makes a node unreachable for a while, or replaces it.
func (s *simulation) troubleNode() {
	var workers []*corev1.Node
	for _, node := range all[*corev1.Node](s, gvrNodes, "") {
		if node.Name != controlPlane && schedulable(node) {
			workers = append(workers, node)
		}
	}
	node, ok := pick(s, workers)
	switch {
	case !ok || len(workers) < 2:
	case s.chance(0.5):
		s.loseNode(node)
	default:
		s.replaceNode(node)
	}
}
