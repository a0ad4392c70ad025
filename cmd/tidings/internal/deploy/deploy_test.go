// Package deploy_test checks the manifests and the image against docs/deploy.md.
package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// Paths relative to this package.
const (
	root   = "../../../.." // of the repository
	folder = root + "/deploy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }

// kubectl runs kubectl as an administrator and returns its output.
func kubectl(t *testing.T, cp *controlplane.Cluster, stdin []byte, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := cp.KubectlCommand(t.Context(), cp.Kubeconfig(controlplane.Admin), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func mustKubectl(t *testing.T, cp *controlplane.Cluster, args ...string) string {
	t.Helper()
	out, errs, err := kubectl(t, cp, nil, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, errs)
	}
	return out
}

// dryRun applies manifests in a server-side dry run.
func dryRun(t *testing.T, cp *controlplane.Cluster, manifests []byte) (said string, err error) {
	t.Helper()
	out, errs, err := kubectl(t, cp, manifests, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
	return out + errs, err
}

// manifests returns what kubectl apply -k applies.
func manifests(t *testing.T, cp *controlplane.Cluster) []byte {
	t.Helper()
	return []byte(mustKubectl(t, cp, "kustomize", folder))
}

// deployment returns the Deployment among the manifests.
func deployment(t *testing.T, all []byte) *appsv1.Deployment {
	t.Helper()
	for _, doc := range bytes.Split(all, []byte("\n---\n")) {
		var d appsv1.Deployment
		if err := yaml.Unmarshal(doc, &d); err == nil && d.Kind == "Deployment" {
			return &d
		}
	}
	t.Fatalf("there is no Deployment in\n%s", all)
	return nil
}

// The API server accepts the manifests without a warning.
func TestManifestsAreValid(t *testing.T) {
	cp := controlplane.Shared(t)
	mustKubectl(t, cp, "apply", "--server-side", "-f", folder+"/rbac.yaml") // the namespace that the others are in
	all := manifests(t, cp)
	said, err := dryRun(t, cp, all)
	if err != nil || strings.Contains(said, "Warning") {
		t.Fatalf("%v: %s", err, said)
	}
	for _, kind := range []string{
		"namespace/tidings", "serviceaccount/tidings", "clusterrole.rbac.authorization.k8s.io/tidings", "clusterrolebinding.rbac.authorization.k8s.io/tidings",
		"service/tidings", "deployment.apps/tidings", "poddisruptionbudget.policy/tidings", "networkpolicy.networking.k8s.io/tidings",
	} {
		if !strings.Contains(said, kind+" serverside-applied (server dry run)") {
			t.Errorf("%s is not among what would be applied: %s", kind, said)
		}
	}
	if said, err := dryRun(t, cp, bytes.Replace(all, []byte("sessionAffinity:"), []byte("sessionAfinity:"), 1)); err == nil || !strings.Contains(said, "sessionAfinity") {
		t.Errorf("a misspelt field is not noticed: %v %s", err, said)
	}
	if out := mustKubectl(t, cp, "get", "deployments,services", "-A", "-o", "name"); strings.Contains(out, "tidings") {
		t.Errorf("the dry run has written: %s", out)
	}
}

// The pods have all restrictions of Pod Security, and are refused without any one of
// them.
func TestPodsAreRestricted(t *testing.T) {
	cp := controlplane.Shared(t)
	mustKubectl(t, cp, "apply", "--server-side", "-f", folder+"/rbac.yaml")
	template := deployment(t, manifests(t, cp)).Spec.Template
	apply := func(change func(*corev1.PodSpec)) (string, error) {
		spec := template.Spec.DeepCopy()
		change(spec)
		body, err := json.Marshal(corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "tidings-x", Namespace: "tidings", Labels: template.Labels},
			Spec:       *spec,
		})
		if err != nil {
			t.Fatal(err)
		}
		return dryRun(t, cp, body)
	}
	if said, err := apply(func(*corev1.PodSpec) {}); err != nil || strings.Contains(said, "Warning") {
		t.Errorf("%v: %s", err, said)
	}
	yes, no, root := true, false, int64(0)
	for what, change := range map[string]func(*corev1.PodSpec){
		"runAsNonRoot":             func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = &no },
		"runAsUser":                func(s *corev1.PodSpec) { s.SecurityContext.RunAsUser = &root },
		"seccompProfile":           func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"allowPrivilegeEscalation": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
		"capabilities":             func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
		"privileged": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.Privileged, s.Containers[0].SecurityContext.AllowPrivilegeEscalation = &yes, &yes
		},
		"hostPath": func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		},
	} {
		if said, err := apply(change); err == nil || !strings.Contains(said, "violates PodSecurity") {
			t.Errorf("without %s: %v %s", what, err, said)
		}
	}
	c := template.Spec.Containers[0]
	if ro := c.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
		t.Error("the root file system can be written to")
	}
	if template.Spec.ServiceAccountName != "tidings" || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() ||
		c.LivenessProbe == nil || c.ReadinessProbe == nil || c.StartupProbe == nil {
		t.Errorf("something is missing in %+v", c)
	}
	limit := c.Resources.Limits.Memory().Value()
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	var mib int64
	if _, err := fmt.Sscanf(c.Env[i].Value, "%dMiB", &mib); err != nil || mib<<20 >= limit || mib<<20 < limit*8/10 {
		t.Errorf("GOMEMLIMIT=%s with a limit of %d", c.Env[i].Value, limit)
	}
}
