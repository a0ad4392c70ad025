package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// serve starts a server on a free port.
func (w *world) serve(args ...string) (*session, string) {
	w.Helper()
	s := w.begin(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	return s, s.awaitServing()
}

// awaitServing returns the URL that a server says it serves on.
func (s *session) awaitServing() string {
	s.world.Helper()
	for {
		if _, url, ok := strings.Cut(s.remark(), "msg=serving url="); ok {
			return strings.Fields(url)[0]
		}
	}
}

func httpGet(t testing.TB, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestServe(t *testing.T) {
	w := newWorld(t)
	w.create(pod("web-1"), pod("web-2", func(p *corev1.Pod) { p.Labels["app"] = "db" }))
	s, url := w.serve("--resource", "pods")
	for path, says := range map[string]string{
		"/pods?labels[app]=db":        `"name":"web-2"`,
		"/core/v1/pods/default/web-1": `"name":"web-1"`,
		"/healthz":                    "ok",
		"/metrics":                    "tidings_",
		"/":                           "/deploy?labels",
	} {
		if code, body := httpGet(t, url+path); code != 200 || !strings.Contains(body, says) {
			t.Errorf("%s: %d, %s", path, code, body)
		}
	}
	if code, body := httpGet(t, url+"/deploy"); code != 404 {
		t.Errorf("a resource that was not asked for: %d, %s", code, body)
	}
	// Ctrl-C ends it with watches open.
	resp, err := http.Get(url + "/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, _ := bufio.NewReader(resp.Body).ReadString('\n'); line == "" {
		t.Error("the watch does not begin")
	}
	if code := s.stop(); code != 0 {
		t.Errorf("it ends with %d: %s", code, drain(s.stderr))
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestGetFromServer(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.create(pod("web-1"), pod("web-2", func(p *corev1.Pod) { p.Namespace = "kube-system" }))
	if _, err := w.clusters[1].Create(pod("web-3")); err != nil {
		t.Fatal(err)
	}
	for i := range 700 {
		w.create(&corev1.ConfigMap{ObjectMeta: pod(numbered("c", i)).ObjectMeta})
	}
	_, url := w.serve("--context", "a", "--context", "b")
	for args, want := range map[string][]string{
		"pods":                      {"NAME READY STATUS RESTARTS AGE", "web-1 0/1 Pending 0 *"},
		"pods -A":                   {"NAMESPACE NAME READY STATUS RESTARTS AGE", "default web-1 0/1 Pending 0 *", "kube-system web-2 0/1 Pending 0 *"},
		"po/web-2 -n kube-system":   {"NAME READY STATUS RESTARTS AGE", "web-2 0/1 Pending 0 *"},
		"pods -A -o name":           {"pod/web-1", "pod/web-2"},
		"pods --context b":          {"NAME READY STATUS RESTARTS AGE", "web-3 0/1 Pending 0 *"},
		"pods --context * ":         {"CLUSTER NAME READY STATUS RESTARTS AGE", "a web-1 0/1 Pending 0 *", "b web-3 0/1 Pending 0 *"},
		"ns/default ns/kube-public": {"NAME STATUS AGE", "default Active *", "kube-public Active *"}, // not namespaced
		"ns/default -n x":           {"NAME STATUS AGE", "default Active *"},
		"pods,ns -l app=web":        {"NAME READY STATUS RESTARTS AGE", "pod/web-1 0/1 Pending 0 *"},
		"cm c-0699 -o name":         {"configmap/c-0699"},
	} {
		out, errs, code := runIn(t.Context(), append([]string{"get", "--server", url}, strings.Fields(args)...)...)
		if code != 0 || errs != "" {
			t.Errorf("%s: %d, %s", args, code, errs)
			continue
		}
		t.Run(args, func(t *testing.T) { check(t, out, want...) })
	}
	out, _, _ := runIn(t.Context(), "get", "cm", "-o", "name", "--server", strings.TrimPrefix(url, "http://"))
	if n := strings.Count(out, "\n"); n != 700 {
		t.Errorf("%d of 700", n)
	}
	out, _, _ = runIn(t.Context(), "get", "pod", "web-1", "-o", "json", "--server", url)
	var p corev1.Pod
	if err := json.Unmarshal([]byte(out), &p); err != nil || p.Kind != "Pod" || p.APIVersion != "v1" || p.Name != "web-1" {
		t.Errorf("%v: %s", err, out)
	}
	for args, says := range map[string]string{
		"pods x":                                `Error from server (NotFound): pods "x" not found`,
		"podz":                                  `the server doesn't have a resource type "podz"`,
		"pods --context z":                      "there are: a, b",
		"pods --field-selector spec.nonsense=1": "spec.nonsense",
		"secrets":                               "ecrets",
	} {
		_, errs, code := runIn(t.Context(), append([]string{"get", "--server", url}, strings.Fields(args)...)...)
		if code != 1 || !strings.Contains(errs, says) {
			t.Errorf("%s: %d, %q lacks %q", args, code, errs, says)
		}
	}
}

// The kubeconfig changes while the server runs.
func TestServeFollowsTheKubeconfig(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.write(1)
	_, url := w.serve("--context", "*")
	clusters := func() string {
		out, _, _ := runIn(t.Context(), "get", "ns", "default", "-o", "name", "--context", "*", "--server", url)
		return strings.Join(strings.Fields(out), " ")
	}
	await := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for clusters() != want {
			if ctx.Err() != nil {
				t.Fatalf("it has %q, want %q", clusters(), want)
			}
		}
	}
	await("namespace/default")
	w.write(2)
	await("a namespace/default b namespace/default")
	w.write(1)
	await("namespace/default")
}

func TestServeDemo(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	w := &world{TB: t}
	_, url := w.serve("--demo")
	if code, body := httpGet(t, url+"/namespaces/?fieldSelector=metadata.name=kube-system"); code != 200 || !strings.Contains(body, "kube-system") {
		t.Errorf("%d: %s", code, body)
	}
}

func TestServeErrors(t *testing.T) {
	w := newWorld(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for args, says := range map[string]string{
		"--listen " + taken.Addr().String(): "address already in use",
		"--listen 0.0.0.0:0":                "--insecure-serve-anyone",
		"--listen nonsense":                 "--listen nonsense",
		"--context z":                       "has no context",
		"--retain -1":                       "--retain",
		"--authentication ldap":             "choose upstream or none",
		"--client-ca-file x":                "--authentication upstream",
		"--authorization-grace -1s":         "give a duration",
		"--tls-cert-file x":                 "tls-private-key-file",
		"--max-watches -1":                  "--max-watches",
		"--authentication upstream --client-ca-file /nowhere":                      "/nowhere",
		"--authentication upstream --tls-cert-file /no --tls-private-key-file /no": "certificate /no",
		"--write-kubeconfig " + w.kubeconfig:                                       "would replace your kubeconfig",
		"--write-kubeconfig /dev/null/x":                                           "--write-kubeconfig",
		"--authentication upstream --insecure-serve-anyone":                        "makes no sense",
		"--resource podz --resource nope":                                          "did you mean pods?",
		"--pprof 0.0.0.0:0":                                                        "use one such as 127.0.0.1:6060",
		"--pprof nonsense":                                                         "--pprof nonsense",
		"--log-format xml":                                                         "choose text or json",
		"pods":                                                                     "--resource pods",
		"--audit-log /dev/null":                                                    "regular file",
		"--audit-log x --audit-log-maxsize 0":                                      "--audit-log-maxsize",
		"--audit-log x --audit-log-maxage -1":                                      "give a number of days",
		"--audit-log-maxage 3":                                                     "--audit-log-maxage needs --audit-log",
		"--tls-cert-dir x":                                                         "--authentication upstream",
		"--authentication upstream --tls-cert-dir /dev/null/x":                     "--tls-cert-dir",
		"--write-kubeconfig x --write-kubeconfig-users":                            "--authentication upstream",
		"--external-url mirror:8443":                                               "give a scheme, a host and a port",
		"--external-url https://mirror/path":                                       "give a scheme, a host and a port",
		"--external-url http://mirror --authentication upstream":                   "use https",
		"--listen 0.0.0.0:0 --authentication upstream --write-kubeconfig x":        "say with --external-url",
	} {
		if !strings.HasPrefix(args, "--listen") {
			args += " --listen 127.0.0.1:0"
		}
		begun := time.Now()
		_, errs, code := w.run(append([]string{"serve", "-v", "error"}, strings.Fields(args)...)...)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("%s: it takes %v to fail", args, took)
		}
		if code != 1 || !strings.Contains(errs, says) {
			t.Errorf("%s: %d, %q lacks %q", args, code, errs, says)
		}
	}
	_, errs, code := runIn(t.Context(), "serve", "--kubeconfig", "/nowhere", "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(errs, "no kubeconfig found at /nowhere") || strings.Contains(errs, "Serving") {
		t.Errorf("%d, %q", code, errs)
	}
	for _, address := range []string{"ftp://x", "http://", "::"} {
		if _, errs, code := runIn(t.Context(), "get", "pods", "--server", address); code != 1 || !strings.Contains(errs, "give a URL such as http://127.0.0.1:8888") {
			t.Errorf("%s: %d, %q", address, code, errs)
		}
	}
	if _, errs, code := runIn(t.Context(), "get", "pods", "--server", taken.Addr().String(), "--demo"); code != 1 || !strings.Contains(errs, "server") {
		t.Errorf("%d, %q", code, errs)
	}
	const nobody = "127.0.0.1:1" // and no port that was free a moment ago, which another may have taken
	if _, errs, code := runIn(t.Context(), "get", "pods", "--server", nobody); code != 1 || !strings.Contains(errs, nobody) || !strings.Contains(errs, "connection refused") {
		t.Errorf("%d, %q", code, errs)
	}
}

// Whatever answers when a server is asked for its clusters, get ends in good
// order.
func FuzzClustersAnswers(f *testing.F) {
	for _, answer := range []string{
		``, `null`, `{}`, `{"data":null}`, `{"data":{}}`, `{"data":[null]}`, `{"data":[{"name":1}]}`, `{"data":[{"name":"\u0000"}]}`, `{"data":[{"name":".."}]}`,
		`{"error":"x","exists":["y"],"reason":"Invalid"}`, `{"kind":"Status","status":"Failure","message":"no"}`,
	} {
		f.Add(answer, 200)
		f.Add(answer, 404)
	}
	f.Fuzz(func(t *testing.T, answer string, status int) {
		if status < 200 || status > 599 {
			return
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, answer)
		}))
		defer srv.Close()
		_, errs, code := runIn(t.Context(), "get", "pods", "--context", "*", "--server", srv.URL)
		if code == 0 || errs == "" {
			t.Errorf("%d, %q", code, errs)
		}
	})
}

func TestWatchServer(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.create(pod("web-1"))
	_, url := w.serve("--context", "a", "--context", "b")
	out, errs, code := runIn(t.Context(), "api-resources", "-o", "name", "--server", url)
	if code != 0 || !strings.Contains(out, "pods") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	one := w.begin("watch", "pods", "--server", url)
	one.expect("* ADDED Pod default/web-1 *")
	all := w.begin("watch", "pods", "--server", url, "--context", "*")
	all.expect("* a ADDED Pod default/web-1 *")
	w.update("web-1", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	one.expect("* MODIFIED Pod default/web-1 *")
	all.expect("* a MODIFIED Pod default/web-1 *")
	w.delete("web-1")
	one.expect("* DELETED Pod default/web-1 *")
}

// serve with authentication, and a client that knows the kubeconfig it wrote.
func TestServeAsUpstream(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	r.kubectl("", "create", "configmap", "for-some", "-n", controlplane.Namespace)
	written := filepath.Join(t.TempDir(), "mirror.yaml")
	s := r.begin("serve", "--listen", "127.0.0.1:0", "-v", "debug", "--authentication", "upstream", "--write-kubeconfig", written, "--write-kubeconfig-users", "--resource", "configmaps")
	var said []string
	for len(said) == 0 || !strings.Contains(said[len(said)-1], "msg=serving") {
		said = append(said, s.remark())
	}
	config, err := clientcmd.BuildConfigFromFlags("", written)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(config.Host, "https://127.0.0.1:") || config.BearerToken != "admin-token" || len(config.CAData) == 0 {
		t.Errorf("the kubeconfig leads to %s, with %d bytes of CA", config.Host, len(config.CAData))
	}
	if info, err := os.Stat(written); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it may be read by others: %v %v", info, err)
	}
	get := func(token, path string) (int, string) {
		t.Helper()
		as := rest.CopyConfig(config)
		as.BearerToken = token
		client, err := rest.HTTPClientFor(as)
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		resp, err := client.Get(config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	path := "/core/v1/configmaps/" + controlplane.Namespace + "/for-some"
	for token, want := range map[string]int{"admin-token": 200, "namespaced-user-token": 200, "nobody-token": 403, "wrong": 401, "": 401} {
		if code, body := get(token, path); code != want || strings.Contains(body, "metadata") != (want == 200) {
			t.Errorf("%q: %d %s", token, code, body)
		}
	}
	if code, body := get("namespaced-user-token", "/configmaps?visible=true"); code != 200 || !strings.Contains(body, "for-some") || strings.Contains(body, "kube-system") {
		t.Errorf("what is visible: %d %s", code, body)
	}
	out, err := r.cp.KubectlCommand(t.Context(), written, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").CombinedOutput()
	if err != nil || string(out) != "admin" {
		t.Errorf("kubectl auth whoami: %v %s", err, out)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	if log := strings.Join(said, "\n") + drain(s.stderr); strings.Contains(log, "-token") || !strings.Contains(log, "level=DEBUG") {
		t.Errorf("a token is in what is said at debug level, or nothing is: %s", log)
	}
}
