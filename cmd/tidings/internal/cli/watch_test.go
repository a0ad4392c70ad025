package cli_test

import (
	"encoding/json"
	"io"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestWatchPrintsEachChange(t *testing.T) {
	w := newWorld(t)
	w.create(pod("web-1"))
	s := w.begin("watch", "pods")
	s.expect("* ADDED Pod default/web-1 *")
	w.create(pod("web-2"))
	w.update("web-1", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	w.delete("web-2")
	s.expect("* ADDED Pod default/web-2 *", "* MODIFIED Pod default/web-1 *", "* DELETED Pod default/web-2 "+w.clusters[0].ResourceVersion())
	if code := s.stop(); code != 0 {
		t.Errorf("interrupted it ends with %d", code)
	}
	if said := drain(s.stderr); said != "" {
		t.Errorf("on stderr: %s", said)
	}
}

func TestWatchSeveralResourcesByAnyName(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"), &corev1.ConfigMap{ObjectMeta: pod("c").ObjectMeta}, &corev1.Secret{ObjectMeta: pod("s").ObjectMeta})
	out, errs, code := w.run("watch", "Pod/p,cm", "secrets.v1", "--once")
	if code != 0 {
		t.Fatal(errs)
	}
	check(t, out, "* ADDED Pod default/p *", "* ADDED ConfigMap default/c *", "* ADDED Secret default/s *")
	out, _, _ = w.run("watch", "all", "--once") // a category
	check(t, out, "* ADDED Pod default/p *")
}

func TestWatchScopes(t *testing.T) {
	w := newWorld(t)
	elsewhere := func(p *corev1.Pod) { p.Namespace = "kube-system" }
	w.create(pod("a"), pod("b", func(p *corev1.Pod) { p.Labels["app"] = "db" }), pod("c", elsewhere))
	for args, want := range map[string]string{
		"pods":              "default/a default/b",
		"pods/b":            "default/b",
		"pods/b pods/a":     "default/b default/a",
		"pods -A":           "default/a default/b kube-system/c",
		"pods/c -A":         "kube-system/c",
		"pods -n none":      "",
		"pods -l app=db":    "default/b",
		"pods/a -l app=db":  "",
		"ns -l x=y":         "",
		"ns/default":        "default",
		"ns -n kube-system": "default kube-node-lease kube-public kube-system", // it has no namespace
		"pods -A --field-selector metadata.namespace=kube-system": "kube-system/c",
	} {
		out, errs, code := w.run(append(strings.Fields("watch --once "+args), "-o", "json")...)
		if code != 0 {
			t.Errorf("%s: %s", args, errs)
			continue
		}
		var got []string
		for line := range strings.Lines(out) {
			var e struct {
				Type   string
				Object struct {
					Kind     string
					Metadata struct{ Namespace, Name string }
				}
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Type != "ADDED" || e.Object.Kind == "" {
				t.Fatalf("%v: %s", err, line)
			}
			got = append(got, strings.Trim(e.Object.Metadata.Namespace+"/"+e.Object.Metadata.Name, "/"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

func TestWatchOutputs(t *testing.T) {
	w := newWorld(t)
	w.create(pod("web-1"))
	wide, diff, yaml := w.begin("watch", "pods", "-o", "wide"), w.begin("watch", "pods", "-o", "diff"), w.begin("watch", "pods", "-o", "yaml")
	wide.expect("* ADDED Pod default/web-1 * age=* ready=0/1 status=Pending restarts=0 labels=app=web")
	diff.expect("* ADDED Pod default/web-1 *")
	for l := ""; l != "status:"; l = yaml.line() {
		if l == "---" {
			yaml.expect("# ADDED", "apiVersion: v1", "kind: Pod")
		}
	}
	yaml.expect("phase: Pending")
	w.update("web-1", func(p *corev1.Pod) {
		p.Spec.NodeName = "n1"
		p.Labels["app.kubernetes.io/name"] = "x"
		delete(p.Labels, "app")
	})
	wide.expect("* MODIFIED Pod default/web-1 * age=* ready=0/1 status=Pending restarts=0 node=n1 labels=app.kubernetes.io/name=x")
	diff.expect("* MODIFIED Pod default/web-1 *", "- .metadata.labels.app: web", `+ .metadata.labels["app.kubernetes.io/name"]: x`, "+ .spec.nodeName: n1")
	for l := ""; l != "---"; l = yaml.line() {
	}
	yaml.expect("# MODIFIED at *")
	w.delete("web-1")
	diff.expect("* DELETED Pod default/web-1 *")
}

func TestWatchSeveralClusters(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.create(pod("p"))
	if _, err := w.clusters[1].Create(pod("q")); err != nil {
		t.Fatal(err)
	}
	for _, contexts := range [][]string{{"--context", "a", "--context", "b"}, {"--context", "*"}} {
		out, errs, code := w.run(append([]string{"watch", "pods", "--once"}, contexts...)...)
		if code != 0 {
			t.Fatal(errs)
		}
		check(t, out, "* a ADDED Pod default/p *", "* b ADDED Pod default/q *")
	}
	out, _, _ := w.run("watch", "pods", "--once", "--context", "b", "-o", "json")
	if strings.Contains(out, `"cluster"`) {
		t.Errorf("a single cluster is named: %s", out)
	}
	out, _, _ = w.run("watch", "pods", "--once", "--context", "*", "-o", "json")
	contains(t, out, `{"type":"ADDED","cluster":"a","object":{`, `"cluster":"b"`)
}

func TestWatchGoesOnWhereItWas(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	s := w.begin("watch", "pods")
	s.expect("* ADDED Pod default/p *")
	for i := range 3 {
		w.clusters[0].CloseWatches(pods)
		w.create(pod(numbered("q", i)))
		s.expect("* ADDED Pod default/" + numbered("q", i) + " *")
	}
	s.stop()
	if said := drain(s.stderr); strings.Contains(said, "list again") {
		t.Errorf("it listed again: %s", said)
	}
}

func TestWatchSaysThatItListedAgain(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"), pod("q"))
	s := w.begin("watch", "pods")
	s.expect("* ADDED Pod default/p *", "* ADDED Pod default/q *")
	w.clusters[0].SetDown(true)
	w.update("p", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	w.delete("q")
	w.create(pod("r"))
	contains(t, s.remark(), "pods in namespace default of cluster a", "trying again in")
	w.clusters[0].Compact()
	w.clusters[0].SetDown(false)
	got := map[string]bool{}
	for range 3 {
		f := strings.Fields(s.line())
		got[f[1]+" "+f[3]] = true
	}
	for _, want := range []string{"MODIFIED default/p", "DELETED default/q", "ADDED default/r"} {
		if !got[want] {
			t.Errorf("no %s in %v", want, got)
		}
	}
	for said := ""; !strings.Contains(said, "had to list again"); said = s.remark() {
	}
}

// A custom resource goes and comes back.
func TestWatchOutlivesItsResource(t *testing.T) {
	w := newWorld(t)
	info := metav1.APIResource{Name: "kites", SingularName: "kite", Kind: "Kite", Group: "x.io", Version: "v1", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}
	kite := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.io/v1", "kind": "Kite", "metadata": map[string]any{"namespace": "default", "name": "k"}}}
	if err := w.clusters[0].AddResource(info); err != nil {
		t.Fatal(err)
	}
	w.create(kite)
	s := w.begin("watch", "kites")
	s.expect("* ADDED Kite default/k *")
	w.clusters[0].RemoveResource(schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "kites"})
	s.expect("* DELETED Kite default/k *")
	contains(t, s.remark(), "kites.v1.x.io", "trying again in")
	if err := w.clusters[0].AddResource(info); err != nil {
		t.Fatal(err)
	}
	w.create(kite)
	s.expect("* ADDED Kite default/k *")
}

func TestWatchSince(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	version := w.clusters[0].ResourceVersion()
	w.create(pod("q"))
	w.update("p", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	s := w.begin("watch", "pods", "--since", version, "-o", "diff")
	s.expect("* ADDED Pod default/q *", "* MODIFIED Pod default/p *", "(its previous state is not known)")
	w.update("p", func(p *corev1.Pod) { p.Spec.NodeName = "n2" })
	s.expect("* MODIFIED Pod default/p *", "~ .spec.nodeName: n → n2")
	s.stop()

	w.clusters[0].Compact()
	s = w.begin("watch", "pods", "--since", version)
	s.expect("* ADDED Pod default/p *", "* ADDED Pod default/q *")
	for said := ""; !strings.Contains(said, "no longer has the changes since resourceVersion "+version); said = s.remark() {
	}
	for _, bad := range []string{"0", "-1", "x", "1.5"} {
		if _, errs, code := w.run("watch", "pods", "--since="+bad); code != 1 || !strings.Contains(errs, `--since: "`+bad+`" is not a moment`) {
			t.Errorf("--since %s: %d, %s", bad, code, errs)
		}
	}
}

func TestWatchOnlyChanges(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	s := w.begin("watch", "pods", "--watch-only")
	for w.clusters[0].OpenWatches(pods) == 0 {
		select {
		case <-s.done:
			t.Fatal(drain(s.stderr))
		default:
		}
	}
	w.update("p", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	s.expect("* MODIFIED Pod default/p *")
}

func TestWatchErrors(t *testing.T) {
	w := newWorld(t)
	w.clusters[0].Inject(func(r *fakeapi.Request) *fakeapi.Fault {
		if r.Resource.Resource == "secrets" {
			return fakeapi.StatusFault(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil))
		}
		return nil
	})
	for args, says := range map[string][]string{
		"watch":                             {"say what to watch"},
		"watch podz":                        {`cluster "a"`, `"podz"`, "pods", "tidings api-resources"},
		"watch pods,secrets":                {"Error from server (Forbidden): ", "secrets in namespace default of cluster a", "forbidden", "grant the verbs list and watch"},
		"watch pods,secrets -A":             {"secrets of cluster a", "or ask for a single namespace"},
		"watch secrets --once":              {"forbidden"},
		"watch pods/":                       {"name is missing"},
		"watch pods/..":                     {`".."`},
		"watch pods/a/b":                    {`"a/b"`},
		"watch ,":                           {"say a resource like"},
		"watch pods -o table":               {"--output table: choose line, wide, diff, json, yaml, name"},
		"watch pods -l =":                   {"--selector ="},
		"watch pods --context z":            {`no context "z" (it has a)`},
		"watch pods --demo":                 {"--demo and --kubeconfig cannot be combined"},
		"watch pods -v loud":                {"--log-level loud"},
		"watch pods --nonsense":             {"--nonsense"},
		"wach pods":                         {`unknown command "wach"`, "watch"},
		"watch pods --since 1 --once":       {"--since and --once cannot be combined"},
		"watch pods --timeout -1s":          {"--timeout -1s: give a time"},
		"watch pods --as-group x":           {"--as-group needs --as"},
		"watch pods --token-file /no":       {"--token-file: open /no"},
		"watch pods --request-timeout soon": {"--request-timeout soon: give a time"},
		"watch pods --client-key x":         {"--client-key needs --client-certificate"},
	} {
		out, errs, code := w.run(strings.Fields(args)...)
		if code != 1 || !strings.HasPrefix(strings.ToLower(errs), "error") {
			t.Errorf("%s: ends with %d, %q, %q", args, code, errs, out)
		}
		for _, want := range says {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: %q lacks %q", args, errs, want)
			}
		}
	}
}

// A cluster that is not there yet is waited for, visibly.
func TestWatchWaitsForTheServer(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	w.clusters[0].SetDown(true)
	s := w.begin("watch", "pods")
	contains(t, s.remark(), `cluster "a"`, "trying again in 1s")
	w.clusters[0].SetDown(false)
	s.expect("* ADDED Pod default/p *")

	w.clusters[0].SetDown(true)
	for _, when := range []string{"discovery", "list"} {
		_, errs, code := w.run("watch", "pods", "--once", "--timeout", "50ms")
		if code != 1 || !strings.Contains(errs, "no complete list after 50ms") {
			t.Errorf("%s: %d, %s", when, code, errs)
		}
		w.clusters[0].SetDown(false)
		w.clusters[0].Inject(func(r *fakeapi.Request) *fakeapi.Fault {
			if r.Resource == pods {
				return &fakeapi.Fault{Drop: true}
			}
			return nil
		})
	}
}

func TestWatchTimeout(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	out, errs, code := w.run("watch", "pods", "--timeout", "5s") // in which it has to print the list, on a slow machine, too
	if code != 0 || errs != "" {
		t.Errorf("%d: %s", code, errs)
	}
	check(t, out, "* ADDED Pod default/p *")
}

// brokenPipe is an output whose reader leaves after the first write.
type brokenPipe struct{ written int }

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.written > 0 {
		return 0, syscall.EPIPE
	}
	b.written += len(p)
	return len(p), nil
}

func TestWatchEndsSilentlyWhenNobodyReads(t *testing.T) {
	w := newWorld(t)
	for i := range 4000 { // more than the output's buffer holds
		w.create(pod(numbered("p", i)))
	}
	for _, args := range []string{"watch pods", "watch pods --once", "get pods -o yaml"} {
		var out brokenPipe
		var errs strings.Builder
		code := cli.Run(t.Context(), cli.IO{Out: &out, Err: &errs}, append(strings.Fields(args), "--kubeconfig", w.kubeconfig)...)
		if code != 0 || errs.Len() > 0 || out.written == 0 {
			t.Errorf("%s: %d, %q", args, code, errs.String())
		}
	}
}

// On a terminal a long first list shows how far it is; elsewhere nothing does.
func TestWatchShowsProgress(t *testing.T) {
	w := newWorld(t, fakeapi.Options{NoWatchList: true})
	for i := range 1200 {
		w.create(pod(numbered("p", i)))
	}
	for _, terminal := range []bool{true, false} {
		release := make(chan struct{})
		remove := w.clusters[0].Inject(func(r *fakeapi.Request) *fakeapi.Fault {
			if r.Verb == "list" && r.Resource == pods && strings.Contains(r.HTTP.URL.RawQuery, "continue=") {
				return &fakeapi.Fault{Until: release}
			}
			return nil
		})
		errs, stderr := io.Pipe()
		ended := make(chan int)
		go func() {
			ended <- cli.Run(t.Context(), cli.IO{Out: io.Discard, Err: stderr, ErrTerminal: terminal}, "watch", "pods", "--once", "--kubeconfig", w.kubeconfig)
			stderr.Close()
		}()
		if terminal {
			buf := make([]byte, 1000)
			for text := ""; !strings.Contains(text, "pods: 500 of 1,200 objects"); {
				n, err := errs.Read(buf)
				if text += string(buf[:n]); err != nil {
					t.Fatalf("%v: %q", err, text)
				}
			}
		}
		close(release)
		rest := make(chan string)
		go func() { b, _ := io.ReadAll(errs); rest <- string(b) }()
		if code := <-ended; code != 0 {
			t.Errorf("ends with %d", code)
		}
		last := <-rest
		if terminal && !strings.HasSuffix(last, "\r\x1b[K") || !terminal && last != "" {
			t.Errorf("terminal %v: %q", terminal, last)
		}
		remove()
	}
}

func TestColoursOnATerminalOnly(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	w := newWorld(t)
	w.create(pod("p"))
	for _, terminal := range []bool{true, false} {
		var out strings.Builder
		cli.Run(t.Context(), cli.IO{Out: &out, Err: io.Discard, OutTerminal: terminal}, "watch", "pods", "--once", "--kubeconfig", w.kubeconfig)
		if strings.Contains(out.String(), "\x1b[32mADDED") != terminal {
			t.Errorf("terminal %v: %q", terminal, out.String())
		}
	}
}
