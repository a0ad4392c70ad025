package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestWhatDoesNotExistIsAnError(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	const notFound = `Error from server (NotFound): pods "nosuch" not found` + "\n"
	for _, args := range []string{
		"get pods nosuch", "get pod/nosuch -o yaml",
		"watch pods nosuch --once", "watch pod/nosuch --once -A -o json",
	} {
		out, errs, code := w.run(strings.Fields(args)...)
		if code != 1 || errs != notFound || strings.Contains(out, "name:") {
			t.Errorf("%s: %d, %q, %q", args, code, errs, out)
		}
	}
	// A name in all namespaces is refused, as by kubectl.
	if _, errs, code := w.run("get", "pods", "nosuch", "-A"); code != 1 || errs != "error: a resource cannot be retrieved by name across all namespaces\n" {
		t.Errorf("%d, %q", code, errs)
	}
	out, errs, code := w.run("watch", "pods", "nosuch", "p", "--once")
	if code != 1 || errs != notFound {
		t.Errorf("%d, %q", code, errs)
	}
	check(t, out, "* ADDED Pod default/p …")
	_, errs, code = w.run("watch", "pods", "--once", "-l", "a=b")
	if code != 0 || errs != "No resources found in namespace default.\n" {
		t.Errorf("%d, %q", code, errs)
	}
}

func TestWatchWaitsForAnObject(t *testing.T) {
	w := newWorld(t)
	s := w.begin("watch", "pods", "web-1")
	if said := s.remark(); said != `Error from server (NotFound): pods "web-1" not found; waiting for it` {
		t.Error(said)
	}
	w.create(pod("web-2"), pod("web-1"))
	s.expect("* ADDED Pod default/web-1 …")
	s = w.begin("watch", "pods", "deploy")
	contains(t, s.remark(), "for several resources, write pods,deploy")
}

func TestInterruptedOnceIsNoSuccess(t *testing.T) {
	w := newWorld(t)
	w.clusters[0].SetDown(true)
	s := w.begin("watch", "pods", "--once")
	contains(t, s.remark(), "trying again")
	if code := s.stop(); code != 130 {
		t.Error(code)
	}
}

func TestSinceOfTheFuture(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	out, errs, code := w.run("watch", "pods", "--since", "9999999")
	if code != 1 || out != "" || errs != "error: --since 9999999 is in the future; pods of cluster a: the newest resourceVersion is "+w.clusters[0].ResourceVersion()+"\n" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
}

// threeClusters are a, b, which refuses to list pods, and c.
func threeClusters(t *testing.T) *world {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{}, fakeapi.Options{})
	for _, c := range w.clusters {
		if _, err := c.Create(pod("p")); err != nil {
			t.Fatal(err)
		}
	}
	refuse(w.clusters[1])
	return w
}

func refuse(c *fakeapi.Cluster) {
	c.Inject(func(r *fakeapi.Request) *fakeapi.Fault {
		if r.Resource == pods {
			return fakeapi.StatusFault(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil))
		}
		return nil
	})
}

func TestOneClusterRefuses(t *testing.T) {
	w := threeClusters(t)
	s := w.begin("watch", "pods", "--context", "*")
	contains(t, s.remark(), "Error from server (Forbidden)", "of cluster b")
	got := map[string]bool{strings.Fields(s.line())[1]: true, strings.Fields(s.line())[1]: true}
	if !got["a"] || !got["c"] {
		t.Error(got)
	}
	if _, err := w.clusters[2].Create(pod("q")); err != nil {
		t.Fatal(err)
	}
	s.expect("* c ADDED Pod default/q …")
	if code := s.stop(); code != 1 {
		t.Errorf("it ends with %d", code)
	}
	if said := drain(s.stderr); said != "error: 1 of 3 clusters failed: b" {
		t.Error(said)
	}
	for _, args := range []string{"get pods", "watch pods --once", "watch pods --once --timeout 20s"} {
		out, errs, code := w.run(append(strings.Fields(args), "--context", "*")...)
		if code != 1 || strings.Count(errs, "Error from server (Forbidden)") != 1 || !strings.Contains(errs, "cluster b") {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
		if words := strings.Fields(out); !slices.Contains(words, "a") || !slices.Contains(words, "c") {
			t.Errorf("%s: %q", args, out)
		}
	}
	out, errs, code := w.run("watch", "pod/nosuch", "--once", "--context", "a", "--context", "c")
	if code != 1 || out != "" || !strings.HasPrefix(errs, `Error from server (NotFound): pods "nosuch" not found in cluster a`+"\n") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	for _, c := range w.clusters {
		refuse(c)
	}
	if _, errs, code := w.run("watch", "pods", "--context", "*"); code != 1 || !strings.HasSuffix(errs, "error: 3 of 3 clusters failed: a, b, c\n") {
		t.Errorf("%d, %q", code, errs)
	}
}

// A cluster that cannot be reached does not keep the others waiting, either.
func TestOneClusterIsAway(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	for _, c := range w.clusters {
		if _, err := c.Create(pod("p")); err != nil {
			t.Fatal(err)
		}
	}
	w.clusters[0].SetDown(true)
	for _, once := range []string{"--once", "--once=false"} {
		s := w.begin("watch", "pods", "--context", "*", once)
		contains(t, s.remark(), `cluster "a"`, "trying again")
		s.expect("* b ADDED Pod default/p …")
		w.clusters[0].SetDown(false)
		s.expect("* a ADDED Pod default/p …")
		w.clusters[0].SetDown(true)
		s.stop()
	}
}

func TestMessagesAreSaidOnce(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"get podz a b":    `error: the server doesn't have a resource type "podz"`,
		"watch podz,podz": `error: cluster "a" serves no resource "podz"; did you mean pods? – "tidings api-resources" lists what can be watched`,
	} {
		if _, errs, code := w.run(strings.Fields(args)...); code != 1 || errs != want+"\n" {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
	}
}

func TestWatchTakesNames(t *testing.T) {
	w := newWorld(t)
	w.create(pod("web-1"), pod("web-2"), pod("web-3"))
	out, errs, code := w.run("watch", "pods", "web-2", "web-1", "--once")
	if code != 0 || errs != "" {
		t.Errorf("%d, %q", code, errs)
	}
	check(t, out, "* ADDED Pod default/web-2 …", "* ADDED Pod default/web-1 …")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, _, _ = runIn(ctx, "__complete", "--kubeconfig", w.kubeconfig, "watch", "pods", "web-1", "w")
	if !strings.HasPrefix(out, "web-2\nweb-3\n") {
		t.Errorf("%q", out)
	}
}
