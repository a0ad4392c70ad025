package samplepods

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
)

// The recorded cluster.
const (
	recordedApps     = 100
	recordedTeams    = 10
	recordedNodes    = 100
	recordedReplicas = 50
)

// Clone returns n new pods, in etcd's order, that look like the recorded ones. The
// same n and seed give the same pods, and the pods of a smaller n are a subset of
// those of a larger n.
//
// The pods form groups of 50, each the ReplicaSet of one application and cloned
// from one of the recorded ReplicaSets in turn. There are 10 applications in a
// namespace and, on average, 50 pods on a node. Beyond 5,000 pods there are further
// applications, namespaces and nodes, numbered on from the recorded ones, so that
// no more pods share a pod template than in a real cluster.
//
// Each group has its own pod-template hash, owner name and owner uid. Each pod has
// its own name, uid, pod IP and resourceVersion, and mounts the token of the
// service account default from a volume kube-api-access-xxxxx of its own.
// managedFields are consistent with the fields they describe.
//
// The clones share strings with one another, which decoded pods do not. To measure
// memory, encode and decode them first.
func Clone(n int, seed uint64) []corev1.Pod {
	pods := make([]corev1.Pod, 0, n)
	for pod := range All(n, seed) {
		pods = append(pods, *pod)
	}
	return pods
}

// All yields the pods of [Clone] one by one, without holding all of them in memory.
func All(n int, seed uint64) iter.Seq[*corev1.Pod] {
	recorded := Load()
	groups := groupByApp(recorded.Items)
	revisions, err := strconv.ParseUint(recorded.ResourceVersion, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("samplepods: parse the recording's resourceVersion: %v", err))
	}
	// Each group is created twice: first to sort the groups, then for its pods.
	group := func(i int) *group {
		round, app := i/recordedApps, i%recordedApps
		return newGroup(&groups[app][0], app, round, revisions, rand.New(rand.NewPCG(seed, uint64(i))))
	}
	type sortKey struct {
		prefix string // of the keys of the group's pods
		group  int
	}
	order := make([]sortKey, (n+recordedReplicas-1)/recordedReplicas)
	for i := range order {
		g := group(i)
		order[i] = sortKey{g.namespace(groups[i%recordedApps][0].Namespace) + "/" + g.name + "-", i}
	}
	slices.SortFunc(order, func(a, b sortKey) int { return strings.Compare(a.prefix, b.prefix) })
	return func(yield func(*corev1.Pod) bool) {
		for _, at := range order {
			g, first := group(at.group), at.group*recordedReplicas
			pods := make([]corev1.Pod, min(recordedReplicas, n-first))
			for r := range pods {
				pods[r] = g.clone(&groups[at.group%recordedApps][r], first+r+1)
			}
			slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
			for r := range pods {
				if !yield(&pods[r]) {
					return
				}
			}
		}
	}
}

// groupByApp returns the pods of each application, by the application's number.
func groupByApp(pods []corev1.Pod) [][]corev1.Pod {
	groups := make([][]corev1.Pod, recordedApps)
	for _, pod := range pods {
		app := number(pod.Labels["app"], "app-")
		groups[app] = append(groups[app], pod)
	}
	return groups
}

// group is a ReplicaSet whose pods are cloned from a recorded one's.
type group struct {
	rng      *rand.Rand
	round    int // how many times all recorded pods were cloned before
	revision uint64
	app      *strings.Replacer // from the recorded application to this one
	taken    map[string]bool   // name suffixes in use

	name     string // of the ReplicaSet
	hash     string
	uid      types.UID
	checksum string
}

func newGroup(pod *corev1.Pod, app, round int, revisions uint64, rng *rand.Rand) *group {
	from, to := strconv.Itoa(app), strconv.Itoa(app+round*recordedApps)
	g := &group{
		rng:      rng,
		round:    round,
		revision: uint64(round) * revisions,
		app:      strings.NewReplacer("app-"+from, "app-"+to, "value-"+from+"-", "value-"+to+"-"),
		taken:    map[string]bool{},
		hash:     utilrand.SafeEncodeString(strconv.FormatUint(uint64(rng.Uint32()), 10)),
		uid:      uid(rng),
		checksum: fmt.Sprintf("%016x%016x%016x%016x", rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64()),
	}
	g.name = g.app.Replace(pod.Labels["app"]) + "-" + g.hash
	return g
}

// clone returns a clone of a recorded pod for the group, the i-th of all clones.
func (g *group) clone(recorded *corev1.Pod, i int) corev1.Pod {
	pod := *recorded.DeepCopy()
	team := g.namespace(pod.Namespace)
	owner := &pod.OwnerReferences[0]
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)
	// managedFields contain the owner's uid and the pod IP as keys.
	inManagedFields := [][2][]byte{
		{[]byte(owner.UID), []byte(g.uid)},
		{quoted(pod.Status.PodIP), quoted(ip)},
	}

	revision, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("samplepods: parse the resourceVersion of %s: %v", pod.Name, err))
	}
	pod.ResourceVersion = strconv.FormatUint(g.revision+revision, 10)
	pod.Namespace = team
	pod.GenerateName = g.name + "-"
	pod.Name = pod.GenerateName + g.suffix()
	pod.UID = uid(g.rng)
	owner.Name, owner.UID = g.name, g.uid
	pod.Labels["app"] = g.app.Replace(pod.Labels["app"])
	pod.Labels["pod-template-hash"] = g.hash
	pod.Labels["team"] = team
	pod.Annotations["checksum/config"] = g.checksum

	pod.Spec.NodeName = shift(pod.Spec.NodeName, "node-", g.round*recordedNodes)
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		container.Image = g.app.Replace(container.Image)
		for j := range container.Env {
			container.Env[j].Value = g.app.Replace(container.Env[j].Value)
		}
	}
	for i := range pod.Spec.Volumes {
		if configMap := pod.Spec.Volumes[i].ConfigMap; configMap != nil {
			configMap.Name = g.app.Replace(configMap.Name)
		}
	}
	mountServiceAccount(&pod.Spec, "kube-api-access-"+randomSuffix(g.rng))

	pod.Status.PodIP = ip
	pod.Status.PodIPs[0].IP = ip
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		status.Image = g.app.Replace(status.Image)
	}
	for _, entry := range pod.ManagedFields {
		for _, change := range inManagedFields {
			entry.FieldsV1.SetRawBytes(bytes.ReplaceAll(entry.FieldsV1.GetRawBytes(), change[0], change[1]))
		}
	}
	return pod
}

// namespace returns the namespace of the group, given that of the recorded pods.
func (g *group) namespace(recorded string) string {
	return shift(recorded, "team-", g.round*recordedTeams)
}

// suffix returns a name suffix that no other pod of the group has.
func (g *group) suffix() string {
	for {
		if suffix := randomSuffix(g.rng); !g.taken[suffix] {
			g.taken[suffix] = true
			return suffix
		}
	}
}

// mountServiceAccount does what the admission plugin ServiceAccount does to a
// pod that names no service account.
func mountServiceAccount(spec *corev1.PodSpec, volume string) {
	const account = "default"
	tokenSeconds, mode := int64(3607), corev1.ProjectedVolumeSourceDefaultMode
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = account, account
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: volume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: &mode,
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &tokenSeconds, Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
					Path:     "namespace",
					FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
				}}}},
			},
		}},
	})
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = append(spec.Containers[i].VolumeMounts, corev1.VolumeMount{
			Name: volume, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
		})
	}
}

// randomSuffix returns five characters from the alphabet that the API server uses
// for generated names.
func randomSuffix(rng *rand.Rand) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(suffix)
}

// uid returns a random UUID.
func uid(rng *rand.Rand) types.UID {
	high, low := rng.Uint64(), rng.Uint64()
	high = high&^(0xf<<12) | 4<<12 // version 4
	low = low&^(3<<62) | 2<<62     // the variant of RFC 9562
	return types.UID(fmt.Sprintf("%08x-%04x-%04x-%04x-%012x",
		high>>32, high>>16&0xffff, high&0xffff, low>>48, low&0xffffffffffff))
}

// shift adds by to the number that follows prefix in name.
func shift(name, prefix string, by int) string { return prefix + strconv.Itoa(number(name, prefix)+by) }

func number(name, prefix string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, prefix))
	if err != nil {
		panic(fmt.Sprintf("samplepods: the recording has %q, want %s and a number", name, prefix))
	}
	return n
}

// quoted returns s as it appears in managedFields: a JSON string inside a string.
// The quotes prevent an IP from matching the beginning of a longer one.
func quoted(s string) []byte { return []byte(`\"` + s + `\"`) }
