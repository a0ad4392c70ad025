package deploy_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/internal/controlplane"
)

type values = map[string]any

// The values that change most of what the chart installs.
var (
	monitored = values{"monitoring": values{"serviceMonitor": true, "rules": true, "dashboard": true}}
	changed   = values{
		"image":    values{"repository": "mirror.example.com:5000/tidings", "tag": "v9", "pullPolicy": "Always", "pullSecrets": []any{"pull"}},
		"replicas": 5, "extraArgs": []any{"--retain=5000"}, "tlsSecret": "other-tls", "goMemLimit": "1800MiB",
		"resources":      values{"requests": values{"cpu": "1"}, "limits": values{"memory": "2Gi"}},
		"rbac":           values{"secrets": true, "extraRules": []any{values{"apiGroups": []any{"example.com"}, "resources": []any{"*"}, "verbs": []any{"get", "list", "watch"}}}},
		"podAnnotations": values{"a": "b"}, "nodeSelector": values{"kubernetes.io/os": "linux"}, "tolerations": []any{values{"key": "a", "operator": "Exists"}},
	}
	publishing = values{"fleet": values{"publish": "nats://nats.tidings.svc:4222", "publishAs": "prod", "natsSecret": "nats-user", "natsInbox": "_INBOX_prod"}}
	following  = values{"fleet": values{"from": "nats://nats.tidings.svc:4222", "natsSecret": "nats-user", "natsInbox": "_INBOX_replica"}}
	secured    = values{"fleet": values{"publish": "tls://nats.example.com:443", "publishAs": "prod", "natsSecret": "nats-user", "natsSecretKeys": []any{"creds", "ca.crt"},
		"natsPort": 443, "streamReplicas": 3, "streamSize": "1Gi"}}
)

// template renders the chart as helm template does.
func template(t *testing.T, release, namespace string, v values) string {
	t.Helper()
	loaded, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	version, err := common.ParseKubeVersion("v1.36.0")
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(loaded, v, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true},
		&common.Capabilities{KubeVersion: *version, APIVersions: common.DefaultVersionSet})
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return !strings.HasSuffix(name, ".yaml") })
	hooks, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil || len(hooks) > 0 {
		t.Fatalf("%v %v", err, hooks)
	}
	var out strings.Builder
	for _, m := range sorted {
		fmt.Fprintf(&out, "---\n%s\n", m.Content)
	}
	return out.String()
}

func kustomize(t *testing.T, folder string) string {
	t.Helper()
	return run(t, kubectl(t, "kustomize", folder))
}

func kubectl(t *testing.T, args ...string) *exec.Cmd {
	cp := controlplane.Shared(t)
	return cp.KubectlCommand(t.Context(), cp.Kubeconfig(controlplane.Admin), args...)
}

// objects parses manifests, in order.
func objects(t *testing.T, manifests string) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, doc := range regexp.MustCompile(`(?m)^---\n`).Split(manifests, -1) {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// byName is what manifests contain, without the labels that Helm's conventions add.
func byName(t *testing.T, manifests string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, o := range objects(t, manifests) {
		name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if _, twice := out[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		out[name] = withoutHelmLabels(o.Object)
	}
	return out
}

func withoutHelmLabels(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, child := range v {
			switch k {
			case "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart":
				continue
			}
			child = withoutHelmLabels(child)
			// Only Helm gives labels to objects that nothing selects.
			if labels, ok := child.(map[string]any); ok && k == "labels" {
				if delete(labels, "app.kubernetes.io/name"); len(labels) == 0 {
					continue
				}
			}
			out[k] = child
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = withoutHelmLabels(child)
		}
		return out
	}
	return v
}

// Helm and kustomize install the same.
func TestTheChartIsWhatKustomizeApplies(t *testing.T) {
	base := kustomize(t, manifests)
	if diff := cmp.Diff(byName(t, base), byName(t, template(t, "tidings", "tidings", values{"namespace": values{"create": true}}))); diff != "" {
		t.Errorf("the chart differs from kustomize (-): %s", diff)
	}
	want := byName(t, base+"\n---\n"+kustomize(t, monitoring))
	delete(want, "Namespace /tidings") // helm install needs one that exists
	if diff := cmp.Diff(want, byName(t, template(t, "tidings", "tidings", monitored))); diff != "" {
		t.Errorf("the chart's monitoring differs from kustomize (-): %s", diff)
	}
	for component, v := range map[string]values{"publisher": publishing, "replicas": following} {
		dir := t.TempDir()
		if err := os.CopyFS(dir+"/deploy", os.DirFS(manifests)); err != nil {
			t.Fatal(err)
		}
		over := dir + "/over"
		if err := os.Mkdir(over, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, over, "kustomization.yaml", values{"resources": []string{"../deploy"}, "components": []string{"../deploy/fleet/" + component}})
		want := byName(t, kustomize(t, over))
		delete(want, "Namespace /tidings")
		if diff := cmp.Diff(want, byName(t, template(t, "tidings", "tidings", v))); diff != "" {
			t.Errorf("the chart with %v differs from the component %s (-): %s", v, component, diff)
		}
	}
	for what, all := range map[string]string{"kustomize": base, "helm": template(t, "tidings", "tidings", values{"namespace": values{"create": true}})} {
		if first := objects(t, all)[0].GetKind(); first != "Namespace" {
			t.Errorf("%s: the first object is a %s; it has to be the namespace that the others are in", what, first)
		}
	}
}

func TestLint(t *testing.T) {
	for _, v := range []values{{}, monitored, changed, publishing, following, secured} {
		for _, m := range lint.RunAll(chart, v, "tidings").Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s", m)
			}
		}
	}
	for word, wrong := range map[string]values{
		"replica":   {"replica": 3},
		"publishAs": {"fleet": values{"publish": "nats://nats:4222"}},
		"fleet":     {"fleet": values{"publish": "nats://nats:4222", "publishAs": "prod", "from": "nats://nats:4222"}},
	} {
		if said := lint.RunAll(chart, wrong, "tidings"); !slices.ContainsFunc(said.Messages, func(m support.Message) bool {
			return m.Severity == support.ErrorSev && strings.Contains(m.Err.Error(), word)
		}) {
			t.Errorf("what is wrong with %v is not noticed: %v", wrong, said.Messages)
		}
	}
}

// A real API server takes all manifests, strictly validated, without a warning: those
// of kustomize and of the chart, from nothing, in the order that they come in.
func TestAnAPIServerAcceptsThem(t *testing.T) {
	apply := func(manifests string, flags ...string) string {
		t.Helper()
		cmd := kubectl(t, append([]string{"apply", "--server-side", "--validate=strict", "-f", "-"}, flags...)...)
		cmd.Stdin = strings.NewReader(manifests)
		said, err := cmd.CombinedOutput()
		if err != nil || bytes.Contains(said, []byte("Warning")) {
			t.Fatalf("%v: %s in\n%s", err, said, manifests)
		}
		return string(said)
	}
	builtIn := func(manifests string) string { // the others have no definition here
		var out strings.Builder
		for _, o := range objects(t, manifests) {
			if strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/") {
				continue
			}
			encoded, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "---\n%s", encoded)
		}
		return out.String()
	}
	for what, all := range map[string]string{
		"kustomize": kustomize(t, manifests) + "\n---\n" + builtIn(kustomize(t, monitoring)),
		"helm":      builtIn(template(t, "tidings", "of-helm", values{"namespace": values{"create": true}, "monitoring": monitored["monitoring"]})),
	} {
		said := apply(all, "--force-conflicts")
		for _, o := range objects(t, all) {
			if kind := strings.ToLower(o.GetKind()); !regexp.MustCompile(`(?m)^` + kind + `(\.\S+)?/` + o.GetName() + ` serverside-applied$`).MatchString(said) {
				t.Errorf("%s: %s %s is not among what was applied:\n%s", what, kind, o.GetName(), said)
			}
		}
	}
	for _, v := range []values{{}, monitored, changed, secured} {
		apply(builtIn(template(t, "tidings", "of-helm", v)), "--force-conflicts", "--dry-run=server")
		apply(builtIn(template(t, "a-second-release", "of-helm", v)), "--dry-run=server") // without conflicts
	}
	if misspelt := strings.Replace(template(t, "tidings", "of-helm", values{}), "sessionAffinity:", "sessionAfinity:", 1); true {
		cmd := kubectl(t, "apply", "--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server", "-f", "-")
		cmd.Stdin = strings.NewReader(misspelt)
		if said, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(said, []byte("sessionAfinity")) {
			t.Errorf("a misspelt field is not noticed: %v %s", err, said)
		}
	}
}

// The resources of the Prometheus operator have no field that it does not know.
func TestResourcesOfTheOperator(t *testing.T) {
	v := values{"monitoring": values{"serviceMonitor": true, "rules": true, "labels": values{"release": "prometheus"}}}
	for what, all := range map[string]string{"kustomize": kustomize(t, monitoring), "helm": template(t, "tidings", "tidings", v)} {
		var kinds []string
		for _, o := range objects(t, all) {
			into, ok := map[string]any{"ServiceMonitor": &monitoringv1.ServiceMonitor{}, "PrometheusRule": &monitoringv1.PrometheusRule{}}[o.GetKind()]
			if !ok {
				continue
			}
			kinds = append(kinds, o.GetKind())
			encoded, err := yaml.Marshal(o.Object)
			if err == nil {
				err = yaml.UnmarshalStrict(encoded, into)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", what, o.GetKind(), err)
			}
			if what == "helm" && o.GetLabels()["release"] != "prometheus" {
				t.Errorf("%s lacks the label by which the operator selects it: %v", o.GetKind(), o.GetLabels())
			}
		}
		if slices.Sort(kinds); !slices.Equal(kinds, []string{"PrometheusRule", "ServiceMonitor"}) {
			t.Errorf("%s has %v", what, kinds)
		}
	}
}

// The image, the chart and the program have one version.
func TestVersion(t *testing.T) {
	mod, err := os.ReadFile(root + "/cmd/tidings/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`github.com/tidings-io/tidings (v\S+)`).FindSubmatch(mod)
	if found == nil {
		t.Fatal("cmd/tidings/go.mod requires no version of the library")
	}
	version := string(found[1])
	var c struct{ Version, AppVersion string }
	content, err := os.ReadFile(chart + "/Chart.yaml")
	if err != nil || yaml.Unmarshal(content, &c) != nil || "v"+c.Version != version || c.AppVersion != version {
		t.Errorf("Chart.yaml has %+v, not %s: %v", c, version, err)
	}
	image := "image: registry.example.com/tidings:" + version
	for what, all := range map[string]string{"kustomize": kustomize(t, manifests), "helm": template(t, "tidings", "tidings", values{})} {
		if !strings.Contains(strings.ReplaceAll(all, `"`, ""), image) {
			t.Errorf("%s has no %s", what, image)
		}
	}
}
