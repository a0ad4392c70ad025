//go:build unix

package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// newForest has a deployment with a replica set and two pods, of which one crashes.
func newForest(t *testing.T) *world {
	w := newWorld(t)
	create := func(o fakeapi.Object, kind string) metav1.OwnerReference {
		t.Helper()
		out, err := w.clusters[0].Create(o)
		if err != nil {
			t.Fatal(err)
		}
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: out.GetName(), UID: out.GetUID(), Controller: new(true)}
	}
	meta := func(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}, OwnerReferences: owners, CreationTimestamp: metav1.NewTime(time.Now().Add(-5 * time.Hour))}
	}
	deploy := create(&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 1}}, "Deployment")
	set := create(&appsv1.ReplicaSet{ObjectMeta: meta("web-7c6b9", deploy), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2))}, Status: appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 1}}, "ReplicaSet")
	for _, name := range []string{"web-7c6b9-b8n2k", "web-7c6b9-x2x9p"} {
		w.create(pod(name, func(p *corev1.Pod) {
			p.ObjectMeta = meta(name, set)
			p.Status.Phase = corev1.PodRunning
			status := corev1.ContainerStatus{Name: "web", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
			if name == "web-7c6b9-x2x9p" {
				status = corev1.ContainerStatus{Name: "web", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container=web pod=web-7c6b9-x2x9p_default(\x1b[31m)",
				}}}
			}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
		}))
	}
	w.create(&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}})
	return w
}

const forest = `Deployment/web                1/2                     5h
│ ! 1 of 2 are ready
└─ ReplicaSet/web-7c6b9       1/2                     5h
   │ ! 1 of 2 are ready
   ├─ Pod/web-7c6b9-b8n2k     1/1 Running             5h
   └─ Pod/web-7c6b9-x2x9p     0/1 CrashLoopBackOff    5h
      ! container web: CrashLoopBackOff: back-off 40s restarting failed`

func TestTreeOfAClusterAndOfAServer(t *testing.T) {
	w := newForest(t)
	_, url := w.serve()
	squeezed := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	for name, from := range map[string][]string{"cluster": nil, "server": {"--server", url}} {
		out, errs, code := w.run(append([]string{"tree", "deploy/web"}, from...)...)
		if code != 0 || !strings.HasPrefix(squeezed(out), squeezed(forest)) || !strings.Contains(out, "Likely cause: Deployment/web → ReplicaSet/web-7c6b9 → Pod/web-7c6b9-x2x9p: container web: CrashLoopBackOff") {
			t.Errorf("%s: %d %s\n%s", name, code, errs, out)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%s: text of the cluster commands the terminal: %q", name, out)
		}
		out, errs, code = w.run(append([]string{"tree", "pod", "web-7c6b9-b8n2k", "--neighbours"}, from...)...)
		if code != 0 || !strings.HasPrefix(out, "Deployment/web") || !strings.Contains(squeezed(out), "└─ Pod/web-7c6b9-b8n2k 1/1 Running") || !strings.Contains(squeezed(out), "Service/web 5h selects Pod/web-7c6b9-b8n2k") {
			t.Errorf("%s: %d %s\n%s", name, code, errs, out)
		}
		out, errs, code = w.run(append([]string{"tree", "deploy/web", "-o", "json"}, from...)...)
		var tree struct {
			Object struct{ Children []struct{ Children []any } }
			Cause  []struct{ Name, Field string }
		}
		if err := json.Unmarshal([]byte(out), &tree); err != nil || code != 0 || len(tree.Object.Children) != 1 || len(tree.Object.Children[0].Children) != 2 || tree.Cause[2].Field != "status.containerStatuses[web].state.waiting" {
			t.Errorf("%s: %v %d %s\n%s", name, err, code, errs, out)
		}
		if out, _, code := w.run(append([]string{"tree", "deploy/web", "-o", "yaml"}, from...)...); code != 0 || !strings.Contains(out, "\nobject:\n") && !strings.HasPrefix(out, "cause:\n") {
			t.Errorf("%s: %d %s", name, code, out)
		}
		if _, errs, code := w.run(append([]string{"tree", "deploy/none"}, from...)...); code != 1 || !strings.Contains(errs, `"none"`) {
			t.Errorf("%s: %d %s", name, code, errs)
		}
	}
	for args, want := range map[string]string{
		"tree": "say of which object", "tree deploy": "say of which object", "tree deploy/web -o wide": "wide",
		"tree deploy/web --at -1h": "--at needs a history", "tree deploy/web --at -1h -w --server http://localhost:1": "--watch follows the present",
		"tree deploy/web --server " + w.hosts[0]: "draws no trees",
	} {
		if _, errs, code := w.run(strings.Fields(args)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
}

// A file of edges is read by the command, or by a server, and refused at the start if it is
// wrong.
func TestTreeWithEdgesOfOnesOwn(t *testing.T) {
	w := newForest(t)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "edges.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("edges:\n- {from: deploy, to: services, name: is reached by, expression: self.metadata.name}\n" +
		"- {from: deploy, to: services, name: fails by, expression: self.spec.none}\n" +
		"- {from: gadgets.example.com, to: pods, name: moves, expression: self.spec.pod}\n")
	out, errs, code := w.run("tree", "deploy/web", "--edges", good)
	if code != 0 || !strings.Contains(out, "Deployment/web is reached by it") || !strings.Contains(out, `? edge "fails by": no such key: none`) || !strings.Contains(errs, "no cluster has the resource gadgets.example.com") {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	s := w.begin("serve", "--listen", "127.0.0.1:0", "--edges", good)
	for line := ""; !strings.Contains(line, "resource=gadgets.example.com"); {
		line = s.remark()
	}
	url := s.awaitServing()
	out, errs, code = w.run("tree", "deploy/web", "--neighbours", "--server", url)
	if code != 0 || !strings.Contains(out, "Deployment/web is reached by it") {
		t.Errorf("of a server: %d %s\n%s", code, errs, out)
	}
	bad := file("edges:\n- {from: deploy, to: services, name: n, expression: slef}\n")
	for _, args := range [][]string{{"tree", "deploy/web", "--edges", bad}, {"serve", "--listen", "127.0.0.1:0", "--edges", bad}} {
		if _, errs, code := w.run(args...); code != 1 || !strings.Contains(errs, bad+":2:53: edge 1 (n): undeclared reference to 'slef'") {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
	for args, want := range map[string]string{"--edges /nowhere": "/nowhere", "--edges " + good + " --server " + url: "a server has a file of its own"} {
		if _, errs, code := w.run(append([]string{"tree", "deploy/web"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
}

func TestTreeOnATerminal(t *testing.T) {
	w := newForest(t)
	var out, errs bytes.Buffer
	if code := cli.Run(t.Context(), cli.IO{Out: &out, Err: &errs, OutTerminal: true, OutWidth: 80}, "tree", "deploy/web", "--neighbours", "--kubeconfig", w.kubeconfig); code != 0 {
		t.Fatal(code, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		plain := strings.TrimRight(regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(line, ""), "\n")
		if n := utf8.RuneCountInString(plain); n > 80 {
			t.Errorf("a line has %d columns: %s", n, plain)
		}
	}
	if !strings.Contains(out.String(), "x2x9p") || !strings.Contains(out.String(), "Service/web") {
		t.Error(out.String())
	}
}

func TestTreeIsFollowed(t *testing.T) {
	w := newForest(t)
	_, url := w.serve()
	s := w.begin("tree", "deploy/web", "-w", "--server", url)
	tree := func() (text string) {
		for line := ""; !strings.HasPrefix(line, "Likely cause"); {
			line = s.line()
			text += line + "\n"
		}
		return text
	}
	if first := tree(); !strings.Contains(first, "b8n2k") {
		t.Error(first)
	}
	w.delete("web-7c6b9-b8n2k")
	if second := tree(); strings.Contains(second, "b8n2k") || !strings.Contains(second, "x2x9p") {
		t.Error(second)
	}
	if code := s.stop(); code != 0 && code != 130 {
		t.Errorf("exit code %d", code)
	}
}

func TestTreeOfThePast(t *testing.T) {
	p := newPast(t)
	out, errs, code := p.run("tree", "pod/web-2", "--at", p.first, "--server", p.url)
	if code != 0 || !strings.HasPrefix(out, "Pod/web-2") || !strings.Contains(errs, "pods/web-2 at ") {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	if _, errs, code := p.run("tree", "pod/web-2", "--at", p.second, "--server", p.url); code != 1 || !strings.Contains(errs, "web-2") {
		t.Errorf("%d %s", code, errs)
	}
	out, errs, code = runIn(p.Context(), append([]string{"tree", "pod/web-3"}, p.offline()...)...)
	if code != 0 || !strings.HasPrefix(out, "Pod/web-3") {
		t.Errorf("of a folder: %d %s\n%s", code, errs, out)
	}
}
