//go:build unix

package cli_test

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// real runs commands against a real API server, as one of its users.
type real struct {
	*world
	cp *controlplane.Cluster
}

func newReal(t *testing.T, user controlplane.User) *real {
	cp := controlplane.Shared(t)
	return &real{&world{TB: t, kubeconfig: cp.Kubeconfig(user)}, cp}
}

// kubectl writes to the cluster.
func (r *real) kubectl(stdin string, args ...string) {
	r.Helper()
	cmd := r.cp.KubectlCommand(r.Context(), r.cp.Kubeconfig(controlplane.Admin), args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRealWatch(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	r.kubectl("", "create", "namespace", "watched")
	s := r.begin("watch", "cm,Secret", "-n", "watched", "-l", "x=y", "-o", "diff")
	r.kubectl(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: watched, labels: {x: "y"}}, data: {a: "1"}}`, "create", "-f-")
	s.expect("* ADDED ConfigMap watched/c *")
	r.kubectl("", "patch", "cm", "c", "-n", "watched", "-p", `{"data":{"a":"2","b":"3"}}`)
	s.expect("* MODIFIED ConfigMap watched/c *", "~ .data.a: \"1\" → \"2\"", "+ .data.b: \"3\"")
	r.kubectl("", "label", "cm", "c", "-n", "watched", "x-") // leaves the selection
	s.expect("* DELETED ConfigMap watched/c *")
	if code := s.stop(); code != 0 {
		t.Error(code)
	}
}

// A custom resource that is defined a moment before it is asked for.
func TestRealCustomResource(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	before := r.begin("watch", "crd", "--watch-only")
	r.kubectl(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kites.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: kites, singular: kite, kind: Kite, shortNames: [kt], categories: [toys]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Colour, type: string, jsonPath: .spec.colour}, {name: Tail, type: integer, jsonPath: .spec.tail, priority: 1}]
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, "create", "-f-")
	r.kubectl("", "wait", "--for=condition=Established", "crd/kites.example.com")
	r.kubectl(`{apiVersion: example.com/v1, kind: Kite, metadata: {name: k, namespace: default}, spec: {colour: red, tail: 3}}`, "create", "-f-")
	for _, name := range []string{"kites", "kt", "Kite", "kites.example.com", "kites.v1.example.com", "toys"} {
		out, errs, code := r.run("watch", name, "--once")
		if code != 0 {
			t.Fatal(errs)
		}
		check(t, out, "* ADDED Kite default/k *")
	}
	out, _, _ := r.run("get", "kites")
	check(t, out, "NAME COLOUR", "k red")
	out, _, _ = r.run("get", "kites", "-o", "wide", "-A")
	check(t, out, "NAMESPACE NAME COLOUR TAIL", "default k red 3")
	out, _, _ = r.run("api-resources", "-o", "name")
	contains(t, out, "kites.example.com\n", "pods\n", "deployments.apps\n")
	// The watch may have begun after the definition was made, so the definition changes until it is told.
	for i, told := 0, false; !told; i++ {
		r.kubectl("", "label", "crd/kites.example.com", "--overwrite", "told="+strconv.Itoa(i))
		for more := true; more && !told; {
			select {
			case l, ok := <-before.stdout:
				if !ok {
					t.Fatalf("the watch has ended: %s", drain(before.stderr))
				}
				told = strings.Contains(l, "kites.example.com")
			default:
				more = false
			}
		}
		if i == 300 {
			t.Fatal("the watch tells nothing of the definition")
		}
	}
}

func TestRealGet(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	r.kubectl("", "create", "deployment", "shown", "--image=x", "--replicas=2", "-n", "default")
	out, errs, code := r.run("get", "deploy")
	if code != 0 {
		t.Fatal(errs)
	}
	check(t, out, "NAME READY UP-TO-DATE AVAILABLE AGE", "shown 0/2 0 0 *")
	out, _, _ = r.run("get", "deploy", "shown", "-o", "wide")
	check(t, out, "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR", "shown 0/2 0 0 * x x app=shown")
	out, _, _ = r.run("get", "deploy", "shown", "-o", "name")
	check(t, out, "deployment.apps/shown")
	out, _, _ = r.run("get", "deploy/shown", "-o", "yaml")
	contains(t, out, "kind: Deployment", "replicas: 2")
	if strings.Contains(out, "managedFields") {
		t.Error(out)
	}
}

func TestRealRights(t *testing.T) {
	nobody, namespaced := newReal(t, controlplane.Nobody), newReal(t, controlplane.NamespacedUser)
	_, errs, code := nobody.run("watch", "pods")
	if code != 1 {
		t.Errorf("%d", code)
	}
	contains(t, errs, "pods", "forbidden", "grant the verbs list and watch")
	_, errs, code = nobody.run("get", "pods")
	if code != 1 {
		t.Errorf("%d", code)
	}
	contains(t, errs, "Error from server (Forbidden)", "cannot list resource \"pods\"")
	_, errs, code = namespaced.run("watch", "pods", "-A")
	if code != 1 {
		t.Errorf("%d", code)
	}
	contains(t, errs, "or ask for a single namespace")
	if _, errs, code = namespaced.run("watch", "pods", "-n", controlplane.Namespace, "--once"); code != 0 {
		t.Errorf("%d, %s", code, errs)
	}
}

// The server goes away and comes back, and has forgotten its history: nothing
// is lost and nothing comes twice.
func TestRealRestart(t *testing.T) {
	cp := controlplane.Start(t)
	r := &real{&world{TB: t, kubeconfig: cp.Kubeconfig(controlplane.Admin)}, cp}
	r.kubectl("", "create", "cm", "before", "-n", "default")
	s := r.begin("watch", "cm", "--field-selector", "metadata.name!=kube-root-ca.crt")
	s.expect("* ADDED ConfigMap default/before *")
	must := func(steps ...func(context.Context) error) {
		t.Helper()
		for _, step := range steps {
			if err := step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Killed, because a server that is told to stop waits a minute for watches.
	must(cp.KillAPIServer, cp.StartAPIServer)
	r.kubectl("", "create", "cm", "between", "-n", "default")
	s.expect("* ADDED ConfigMap default/between *")
	must(cp.KillAPIServer, cp.CompactEtcd, cp.StartAPIServer)
	r.kubectl("", "delete", "cm", "before", "-n", "default")
	s.expect("* DELETED ConfigMap default/before *")
	r.kubectl("", "create", "cm", "after", "-n", "default")
	s.expect("* ADDED ConfigMap default/after *")
	if code := s.stop(); code != 0 {
		t.Error(code)
	}
}

// The past of a real cluster: who wrote what, of a server and then of its folder.
func TestRealPast(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	r.kubectl("", "create", "namespace", "past")
	r.kubectl("", "create", "deployment", "web", "--image=web:1", "-n", "past")
	p := &past{world: r.world, dir: filepath.Join(t.TempDir(), "history")}
	p.server, p.url = p.serve("--resource", "deployments.apps", "--history", p.dir)
	path := p.url + "/apps/v1/deployments/past/web"
	code, first := httpGet(t, path)
	if code != 200 {
		t.Fatal(first)
	}
	begun := p.momentOf(path, 0)
	live := p.begin("watch", "deploy", "-n", "past", "--since", begun, "-o", "diff", "--server", p.url)
	r.kubectl("", "set", "image", "deployment/web", "*=web:2", "-n", "past", "--field-manager=release-bot")
	live.expect("* MODIFIED Deployment past/web *")
	ended := p.momentOf(path, 1)
	if code := live.stop(); code != 0 {
		t.Error(code)
	}
	read := func(source ...string) {
		t.Helper()
		out, _ := p.runPast(source, 0, "get", "deploy", "-n", "past", "-o", "wide", "--at", begun)
		check(t, out, "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR", "web 0/1 0 0 * web web:1 app=web")
		out, _ = p.runPast(source, 0, "history", "deploy/web", "-n", "past", "--until", ended)
		contains(t, out, "MODIFIED", "release-bot", "spec.template.spec.containers[web].image")
		out, _ = p.runPast(source, 1, "diff", "deploy", "-n", "past", "--from", begun, "--to", ended)
		contains(t, out, "~ Deployment past/web", "~ .spec.template.spec.containers[web].image: web:1 → web:2")
	}
	read("--server", p.url)
	read(p.offline()...)
}
