package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestGetTables(t *testing.T) {
	w := newWorld(t)
	three := int32(3)
	w.create(
		pod("web-1", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{Ready: true, RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
			p.Spec.NodeName = "n1"
			p.CreationTimestamp = metav1.NewTime(time.Now().Add(-3 * time.Hour))
		}),
		pod("web-2", func(p *corev1.Pod) {
			p.Namespace = "kube-system"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		}),
		&corev1.Event{ObjectMeta: pod("e").ObjectMeta, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web-1"}, Type: "Normal", Reason: "Pulled", Message: "an\nimage"},
		&appsv1.Deployment{ObjectMeta: pod("web").ObjectMeta, Spec: appsv1.DeploymentSpec{Replicas: &three}, Status: appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2}},
	)
	for args, want := range map[string][]string{
		"get pods":                     {"NAME READY STATUS RESTARTS AGE", "web-1 1/1 Running 2 *"},
		"get pods --no-headers":        {"web-1 1/1 Running 2 *"},
		"get events":                   {"LAST SEEN TYPE REASON OBJECT MESSAGE", "* Normal Pulled pod/web-1 an..."},
		"get pods -A":                  {"NAMESPACE NAME READY STATUS RESTARTS AGE", "default web-1 1/1 Running 2 *", "kube-system web-2 0/1 CrashLoopBackOff 0 *"},
		"get pods -o wide":             {"NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES", "web-1 1/1 Running 2 * 10.0.0.1 n1 <none> <none>"},
		"get pod web-2 -n kube-system": {"NAME READY STATUS RESTARTS AGE", "web-2 0/1 CrashLoopBackOff 0 *"},
		"get deploy,pods -l app=web":   {"NAME READY UP-TO-DATE AVAILABLE AGE", "deployment.apps/web 2/3 1 2 *", "", "NAME READY STATUS RESTARTS AGE", "pod/web-1 1/1 Running 2 *"},
		"get pod/web-1 deploy/web":     {"NAME READY STATUS RESTARTS AGE", "pod/web-1 1/1 Running 2 *", "", "NAME READY UP-TO-DATE AVAILABLE AGE", "deployment.apps/web 2/3 1 2 *"},
		"get ns":                       {"NAME STATUS AGE", "default Active *", "kube-node-lease Active *", "kube-public Active *", "kube-system Active *"},
		"get pods,deploy -o name":      {"pod/web-1", "deployment.apps/web"},
	} {
		out, errs, code := w.run(strings.Fields(args)...)
		if code != 0 || errs != "" {
			t.Errorf("%s: %d, %s", args, code, errs)
		}
		t.Run(args, func(t *testing.T) { check(t, out, want...) })
	}
	out, errs, code := w.run("get", "pods", "-n", "none")
	if out != "" || code != 0 || errs != "No resources found in none namespace.\n" {
		t.Errorf("%q %q %d", out, errs, code)
	}
}

func TestGetObjects(t *testing.T) {
	w := newWorld(t)
	w.create(pod("a", func(p *corev1.Pod) { p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}} }), pod("b"))
	for _, output := range []string{"json", "yaml"} {
		out, _, _ := w.run("get", "pods", "-o", output)
		var list struct {
			APIVersion, Kind string
			Items            []struct {
				APIVersion, Kind string
				Metadata         struct {
					Name          string
					ManagedFields []any
				}
			}
		}
		if err := yaml.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		if list.Kind != "List" || list.APIVersion != "v1" || len(list.Items) != 2 || list.Items[1].Kind != "Pod" || list.Items[1].APIVersion != "v1" ||
			list.Items[0].Metadata.Name != "a" || list.Items[0].Metadata.ManagedFields != nil {
			t.Errorf("%+v", list)
		}
		out, _, _ = w.run("get", "pods", "b", "-o", output)
		var one corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(out), &one); err != nil || one.Name != "b" || one.Kind != "Pod" {
			t.Errorf("%v: %s", err, out)
		}
		out, _, _ = w.run("get", "secrets", "-o", output)
		if err := yaml.Unmarshal([]byte(out), &list); err != nil || !strings.Contains(out, "[]") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

func TestGetManyPages(t *testing.T) {
	w := newWorld(t)
	for i := range 1234 {
		w.create(pod(numbered("p", i)))
	}
	out, errs, _ := w.run("get", "pods", "-o", "name")
	if n := strings.Count(out, "\n"); n != 1234 || errs != "" {
		t.Errorf("%d, %s", n, errs)
	}
	if n := w.clusters[0].Count("list", pods); n != 3 {
		t.Errorf("%d requests", n)
	}
}

func TestGetSeveralClusters(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.create(pod("p"))
	if _, err := w.clusters[1].Create(pod("q")); err != nil {
		t.Fatal(err)
	}
	out, _, _ := w.run("get", "pods", "--context", "*")
	check(t, out, "CLUSTER NAME READY STATUS RESTARTS AGE", "a p 0/1 Pending 0 *", "b q 0/1 Pending 0 *")
	out, _, _ = w.run("get", "pods", "--context", "*", "-o", "name")
	check(t, out, "a pod/p", "b pod/q")
	if _, errs, code := w.run("get", "pods", "--context", "*", "-o", "json"); code != 1 || !strings.Contains(errs, "one --context") {
		t.Errorf("%d %s", code, errs)
	}
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters[config.Contexts["b"].Cluster].Server = strings.Replace(w.hosts[1], "http:", "https:", 1)
	wrong := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, wrong); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := runIn(t.Context(), "get", "pods", "--context", "*", "--kubeconfig", wrong); code != 1 || !strings.HasPrefix(errs, `error: cluster "b": https://`) {
		t.Errorf("%d %s", code, errs)
	}
	// What there is of one is shown though the other fails.
	w.clusters[1].SetDown(true)
	out, errs, code := w.run("get", "pods", "--context", "*")
	check(t, out, "CLUSTER NAME READY STATUS RESTARTS AGE", "a p 0/1 Pending 0 *")
	if code != 1 || !strings.Contains(errs, `cluster "b"`) {
		t.Errorf("%d %s", code, errs)
	}
}

func TestGetErrors(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	for args, says := range map[string]string{
		"get":               "say what to get",
		"get pods x":        `Error from server (NotFound): pods "x" not found`,
		"get podz":          `the server doesn't have a resource type "podz"`,
		"get pods p -l a=b": "name cannot be provided when a selector is specified",
		"get pod/p q":       "resource/<resource_name>",
		"get pods ..":       `may not be '..'`,
		"get pods -o line":  `unable to match a printer suitable for the output format "line"`,
		"get pods --field-selector spec.nonsense=1": "spec.nonsense",
	} {
		_, errs, code := w.run(strings.Fields(args)...)
		if code != 1 || !strings.Contains(errs, says) {
			t.Errorf("%s: %d, %q lacks %q", args, code, errs, says)
		}
	}
	out, errs, code := w.run("get", "pods", "p", "x", "-o", "name")
	if out != "pod/p\n" || code != 1 || !strings.Contains(errs, `"x" not found`) {
		t.Errorf("%q %q %d", out, errs, code)
	}
}

// tableServer is an API server that serves widgets with one fixed answer.
func tableServer(t testing.TB, answer string) (kubeconfig string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"versions":[]}`)
		case "/apis":
			fmt.Fprint(w, `{"groups":[{"name":"x.io","versions":[{"groupVersion":"x.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"x.io/v1","version":"v1"}}]}`)
		case "/apis/x.io/v1":
			fmt.Fprint(w, `{"groupVersion":"x.io/v1","resources":[{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["get","list","watch"]}]}`)
		default:
			fmt.Fprint(w, answer)
		}
	}))
	t.Cleanup(srv.Close)
	return kubeconfigOf(t, srv.URL)
}

func TestGetShowsTheServersTable(t *testing.T) {
	file := tableServer(t, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[
		{"name":"Name","type":"string","priority":0},{"name":"Size","type":"integer","priority":0},{"name":"Note","priority":1}],
		"rows":[{"cells":["w1",1234567,"two\twords\u001b[31m"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w1","namespace":"ns1"}}},{"cells":["w2",null],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w2"}}}]}`)
	out, errs, _ := runIn(t.Context(), "get", "widgets", "-A", "--kubeconfig", file)
	check(t, out, "NAMESPACE NAME SIZE", "ns1 w1 1234567", "w2")
	if errs != "" {
		t.Error(errs)
	}
	out, _, _ = runIn(t.Context(), "get", "widgets", "-o", "wide", "--kubeconfig", file)
	check(t, out, "NAME SIZE NOTE", `w1 1234567 two words^[[31m`, "w2")
}

// Whatever a server answers, get ends in good order with output or an error.
func FuzzServerAnswers(f *testing.F) {
	for _, answer := range []string{
		``, `null`, `[]`, `{}`, `{"items":null}`, `{"kind":"WidgetList","items":[null]}`, `{"kind":"WidgetList","apiVersion":"x.io/v1","items":[{"metadata":{"name":1}}]}`,
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"cells":[{}]}]}`, `{"kind":"PodList","apiVersion":"v1","items":[{"status":{"containerStatuses":[1]}}]}`,
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":[{}],"rows":[{"cells":[],"object":{"metadata":3}}]}`,
	} {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		if strings.Contains(answer, `"continue"`) {
			return // a server can keep a client paging for ever
		}
		file := tableServer(t, answer)
		for _, output := range []string{"", "wide", "name", "json", "yaml", "jsonpath={.}", "go-template={{.}}", "custom-columns=N:.metadata.name"} {
			for _, name := range []string{"widgets", "widgets/w"} {
				out, errs, code := runIn(t.Context(), "get", name, "-A", "-o", output, "--kubeconfig", file)
				if code != 0 && errs == "" || code == 0 && out == "" && errs == "" && output != "name" && !strings.Contains(output, "=") {
					t.Errorf("%s -o %s: %d, %q, %q", name, output, code, out, errs)
				}
			}
		}
	})
}

func TestAPIResources(t *testing.T) {
	w := newWorld(t)
	if err := w.clusters[0].AddResource(metav1.APIResource{Name: "widgets", SingularName: "widget", Group: "x.io", Version: "v1", Kind: "Widget", Verbs: metav1.Verbs{"get"}}); err != nil {
		t.Fatal(err)
	}
	out, errs, code := w.run("api-resources")
	if code != 0 || errs != "" {
		t.Fatal(errs)
	}
	check(t, strings.Split(out, "\n")[0], "NAME SHORTNAMES APIVERSION NAMESPACED KIND")
	contains(t, out, "deployments", "apps/v1", "Deployment", "deploy")
	if strings.Contains(out, "widgets") {
		t.Error("what cannot be watched is listed")
	}
	out, _, _ = w.run("api-resources", "-o", "name")
	contains(t, out, "pods\n", "deployments.apps\n")
	out, _, _ = w.run("api-resources", "-o", "wide")
	contains(t, out, "VERBS", "CATEGORIES", "list,patch", "all")
	out, _, _ = w.run("api-resources", "-o", "json")
	var list []struct{ Cluster, Name, Kind string }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) < 10 || list[0].Cluster != "a" {
		t.Errorf("%v: %s", err, out)
	}
	w.clusters[0].SetDown(true)
	if _, errs, code = w.run("api-resources"); code != 1 || !strings.Contains(errs, `cluster "a"`) {
		t.Errorf("%d, %s", code, errs)
	}
}
