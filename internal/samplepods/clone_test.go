package samplepods

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const seed = 1

func TestClonesAreTheirOwn(t *testing.T) {
	const n = 12_345
	clones := Clone(n, seed)
	if len(clones) != n {
		t.Fatalf("%d pods, want %d", len(clones), n)
	}

	recorded := Load().Items
	for what, of := range map[string]func(*corev1.Pod) string{
		"name": func(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name },
		"uid":  func(pod *corev1.Pod) string { return string(pod.UID) },
		// A clone may have the IP and the resourceVersion of a recorded pod, which
		// is in another cluster.
		"pod IP":          func(pod *corev1.Pod) string { return pod.Status.PodIP },
		"resourceVersion": func(pod *corev1.Pod) string { return pod.ResourceVersion },
	} {
		seen := map[string]bool{}
		if what == "name" || what == "uid" {
			for i := range recorded {
				seen[of(&recorded[i])] = true
			}
		}
		for i := range clones {
			value := of(&clones[i])
			if seen[value] {
				t.Fatalf("the %s of %s/%s is %s, which another pod has, too", what, clones[i].Namespace, clones[i].Name, value)
			}
			seen[value] = true
		}
	}

	// The API server chooses the names of volumes at random, too, and does not check
	// whether another pod has a volume of that name.
	volumes := map[string]bool{}
	for i := range clones {
		volumes[tokenVolume(&clones[i])] = true
	}
	if len(volumes) < n*99/100 {
		t.Errorf("%d pods have %d names for the volume of the token, want one each but for a few", n, len(volumes))
	}
}

func TestClonesComeInReplicaSets(t *testing.T) {
	type owner struct{ namespace, name, uid, hash, app string }
	replicas := map[owner]int{}
	apps := map[string]bool{}
	for _, pod := range Clone(10_020, seed) {
		ref := pod.OwnerReferences[0]
		replicas[owner{pod.Namespace, ref.Name, string(ref.UID), pod.Labels["pod-template-hash"], pod.Labels["app"]}]++
		apps[pod.Labels["app"]] = true
	}
	if len(replicas) != 201 || len(apps) != 201 {
		t.Errorf("%d ReplicaSets of %d applications, want 201 of as many", len(replicas), len(apps))
	}
	uids, hashes := map[string]bool{}, map[string]bool{}
	for owner, n := range replicas {
		if want := 50; n != want && n != 20 {
			t.Errorf("%d pods of ReplicaSet %s, want %d, or 20 of the last", n, owner.name, want)
		}
		if owner.name != owner.app+"-"+owner.hash {
			t.Errorf("ReplicaSet %s is of application %s at hash %s", owner.name, owner.app, owner.hash)
		}
		uids[owner.uid], hashes[owner.hash] = true, true
	}
	if len(uids) != len(replicas) || len(hashes) != len(replicas) {
		t.Errorf("%d ReplicaSets have %d uids and %d hashes", len(replicas), len(uids), len(hashes))
	}
}

// TestCloneIsLikeTheRecordedPod checks that a clone differs from the recorded pod
// only in its own names and numbers and in the service account.
func TestCloneIsLikeTheRecordedPod(t *testing.T) {
	recorded := groupByApp(Load().Items)[7][0]
	// The first of application 107, which is cloned from application 7.
	clones := Clone(10_000, seed)
	i := slices.IndexFunc(clones, func(pod corev1.Pod) bool {
		return pod.Labels["app"] == "app-107" && pod.Status.PodIP == "10.0.20.231" // the 5,351st
	})
	if i < 0 {
		t.Fatal("the clone is missing")
	}
	clone := clones[i]
	encode := func(pod corev1.Pod) string {
		for i, entry := range pod.ManagedFields {
			// The order of fields is that of their names, and so of uids.
			var fields any
			if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
				t.Fatal(err)
			}
			sorted, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			pod.ManagedFields[i].FieldsV1.SetRawBytes(sorted)
		}
		text, err := json.MarshalIndent(pod, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	// Undo as text what Clone does.
	spec := &clone.Spec
	last := len(spec.Volumes) - 1
	if name := spec.Volumes[last].Name; !regexp.MustCompile(`^kube-api-access-[a-z0-9]{5}$`).MatchString(name) {
		t.Errorf("the last volume is %s, want one with a token", name)
	}
	spec.Volumes = spec.Volumes[:last]
	for i := range spec.Containers {
		container := &spec.Containers[i]
		last := len(container.VolumeMounts) - 1
		if path := container.VolumeMounts[last].MountPath; path != "/var/run/secrets/kubernetes.io/serviceaccount" {
			t.Errorf("the last volume of container %s is at %s", container.Name, path)
		}
		container.VolumeMounts = container.VolumeMounts[:last]
		if len(container.VolumeMounts) == 0 {
			container.VolumeMounts = nil
		}
	}
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	got := strings.NewReplacer(
		clone.Name, recorded.Name,
		clone.GenerateName, recorded.GenerateName,
		clone.OwnerReferences[0].Name, recorded.OwnerReferences[0].Name,
		string(clone.OwnerReferences[0].UID), string(recorded.OwnerReferences[0].UID),
		string(clone.UID), string(recorded.UID),
		clone.Labels["pod-template-hash"], recorded.Labels["pod-template-hash"],
		clone.Annotations["checksum/config"], recorded.Annotations["checksum/config"],
		clone.Status.PodIP, recorded.Status.PodIP,
		clone.ResourceVersion, recorded.ResourceVersion,
		clone.Spec.NodeName, recorded.Spec.NodeName,
		"app-107", "app-7", "value-107-", "value-7-", "team-17", "team-7",
	).Replace(encode(clone))
	if diff := cmp.Diff(encode(recorded), got); diff != "" {
		t.Errorf("the clone differs from the recorded pod (-recorded +clone):\n%s", diff)
	}
}

func TestClonesAreDeterministic(t *testing.T) {
	few, many := Clone(75, seed), Clone(150, seed)
	if !equality.Semantic.DeepEqual(few, Clone(75, seed)) {
		t.Error("the same number and seed give other pods")
	}
	byName := map[string]*corev1.Pod{}
	for i := range many {
		byName[many[i].Namespace+"/"+many[i].Name] = &many[i]
	}
	for i := range few {
		if !equality.Semantic.DeepEqual(&few[i], byName[few[i].Namespace+"/"+few[i].Name]) {
			t.Fatalf("pod %s of the first 75 is not among the first 150", few[i].Name)
		}
	}
	if few[0].UID == Clone(75, seed+1)[0].UID {
		t.Error("another seed gives the same pods")
	}
}

func TestClonesAreInEtcdsOrder(t *testing.T) {
	key := func(pod corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
	for name, pods := range map[string][]corev1.Pod{"recorded": Load().Items, "clones": Clone(6000, seed)} {
		if !slices.IsSortedFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(key(a), key(b)) }) {
			t.Errorf("the %s are not in the order of namespace/name", name)
		}
	}
}

// tokenVolume returns the name of the volume with the service account's token.
func tokenVolume(pod *corev1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		if strings.HasPrefix(volume.Name, "kube-api-access-") {
			return volume.Name
		}
	}
	return ""
}
