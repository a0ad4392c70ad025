package page_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Two clusters in one table, of which one dies and comes back.
func TestTwoClustersOfWhichOneDies(t *testing.T) {
	clusters, configs := map[string]*fakeapi.Cluster{}, map[string]*rest.Config{}
	for _, name := range []string{"prod", "staging"} {
		c := fakeapi.New(fakeapi.Options{})
		config, stop := fakeapi.InProcess(c)
		t.Cleanup(stop)
		clusters[name], configs[name] = c, config
		putPod(t, c, "shop", "web", corev1.PodRunning)
		putPod(t, c, "shop", "only-"+name, corev1.PodPending, func(p *corev1.Pod) { p.Spec.NodeName = "node-of-" + name })
	}
	s := serveAll(t, configs, server.Options{})
	p := visit(t, s, "#/pods?cluster=prod", "")
	p.awaitText(".fresh.good", "live")
	p.press(":")
	p.press("pods +.spec.nodeName /shop,web @prod,st")
	p.awaitText(".prompt li", "@prod,staging")
	p.press("\t", enter)
	rows := func(want string) string {
		return "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[0].innerText + ' ' + r.cells[2].innerText).join() === '" + want + "'"
	}
	p.await("the rows of both are shown", rows("prod only-prod,staging only-staging,prod web,staging web"))
	p.await("the field is a column", "document.querySelector('thead').innerText.includes('.spec.nodeName') && document.querySelector('tbody').innerText.includes('node-of-staging')")
	p.awaitText(".summary", "2 Pending")
	p.press("1", "1")
	p.await("they are sorted by cluster", rows("staging only-staging,staging web,prod only-prod,prod web"))
	p.press("0")
	p.await("they are sorted by name", rows("prod only-prod,staging only-staging,prod web,staging web"))
	p.press("j", enter)
	p.awaitText(".object .command", "kubectl describe pods only-staging -n shop --context staging")
	p.press("y")
	p.awaitText(".object", "nodeName: node-of-staging")
	p.press(escape)
	clusters["staging"].SetDown(true)
	p.awaitText(".fresh.bad", "1 of 2 clusters live")
	p.awaitText(".summary", "staging stale for")
	putPod(t, clusters["prod"], "shop", "new", corev1.PodRunning)
	p.await("the other one is live", rows("prod new,prod only-prod,staging only-staging,prod web,staging web"))
	clusters["staging"].SetDown(false)
	p.awaitText(".fresh.good", "live")
	if err := s.mirror.Set(t.Context(), map[string]*rest.Config{"prod": configs["prod"]}); err != nil {
		t.Fatal(err)
	}
	p.awaitText(".summary", "staging not shown")
	p.press("/")
	p.press("only-staging", enter)
	p.awaitText(".empty", "None where you can see. Not shown: staging.")
}

// What is not permitted in one cluster or namespace is said, and the rest is shown.
func TestPartlyPermitted(t *testing.T) {
	gate, err := access.NewGate(access.Options{AllowTTL: 200 * time.Millisecond, DenyTTL: 50 * time.Millisecond, NamespaceDenyTTL: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	configs := map[string]*rest.Config{}
	for _, name := range []string{"prod", "staging"} {
		c := fakeapi.New(fakeapi.Options{
			Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "jane-token": {Name: "jane"}},
			Allow: func(u fakeapi.User, a fakeapi.Access) bool {
				return u.Name == "mirror" || u.Name == "jane" && a.Namespace == "shop" && name == "prod"
			},
		})
		config, stop := fakeapi.InProcess(c)
		t.Cleanup(stop)
		config.BearerToken = "mirror-token"
		configs[name] = config
		putPod(t, c, "shop", "web", corev1.PodRunning)
		putPod(t, c, "secret", "hidden", corev1.PodRunning)
	}
	s := serveAll(t, configs, server.Options{Gate: gate})
	p := visit(t, s, "#/pods?cluster=*&namespace=shop,secret", "401", "403")
	p.awaitText(".token", "Who are you?")
	p.press("jane-token", enter)
	p.awaitText(".summary", "prod live")
	p.awaitText(".summary", "not permitted: namespace secret")
	p.awaitText(".summary", "staging not permitted")
	p.await("one pod is shown", "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[0].innerText + r.cells[2].innerText).join() === 'prodweb'")
	p.press("/")
	p.press("nothing", enter)
	p.awaitText(".empty", "None where you can see. Not shown: staging, namespace secret.")
}
