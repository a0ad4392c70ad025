package page_test

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// startGuarded serves a cluster to callers with a token, who may read pods, namespaces and
// events of the namespace shop.
func startGuarded(tb testing.TB, options server.Options) (*served, *fakeapi.Cluster) {
	tb.Helper()
	c := fakeapi.New(fakeapi.Options{
		Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "jane-token": {Name: "jane"}, "jane-again": {Name: "jane"}},
		Allow: func(u fakeapi.User, a fakeapi.Access) bool {
			return u.Name == "mirror" || u.Name == "jane" && a.Namespace == "shop"
		},
	})
	config, stop := fakeapi.InProcess(c)
	tb.Cleanup(stop)
	config.BearerToken = "mirror-token"
	gate, err := access.NewGate(access.Options{AllowTTL: 200 * time.Millisecond, DenyTTL: 50 * time.Millisecond, NamespaceDenyTTL: 200 * time.Millisecond})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(gate.Close)
	options.Gate = gate
	for _, name := range []string{"shop", "secret"} {
		put(tb, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-3 * time.Hour))}})
	}
	return serve(tb, config, options), c
}

// The past is shown under the rights of now: its moments, its changes and its timelines.
func TestThePastUnderRightsOfNow(t *testing.T) {
	s, c := startGuarded(t, withHistory(t))
	putPod(t, c, "shop", "web", corev1.PodPending)
	putPod(t, c, "secret", "canary", corev1.PodPending)
	p := visit(t, s, "#/pods", "400", "401", "403", "410")
	p.awaitText(".token", "Who are you?")
	p.press("jane-token", enter)
	p.awaitText(".summary", "1 Pending")
	p.await("there is a time bar", "document.querySelector('.time')")
	recorded(t, s, "/pods?namespace=shop&at=-1ms", `"Pending"`, "jane-token")
	then := instant()
	putPod(t, c, "secret", "canary", corev1.PodRunning)
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p.awaitText(".summary", "1 Running")
	p.press(":")
	p.press("pods "+then, enter)
	p.awaitText(".fresh.wait", "past")
	p.await("the pod that may be read is as it was, and there is no other", "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[0].innerText + ' ' + r.innerText.includes('Pending')).join() === 'web true' || [...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[1].innerText + ' ' + r.cells[3].innerText).join() === 'web Pending'")
	p.press("j", enter, "h")
	p.awaitText(".changes", ".status.phase Pending → Running")
	p.press("d")
	p.awaitText(".object .facts", "Pending")
	p.press(escape, "x")
	p.awaitText(".around", "web changed")
	p.await("nothing else has come", "!document.documentElement.innerHTML.includes('canary')")
	for view, part := range map[string]string{"at=" + then: ".trouble", "object=secret/canary&view=timeline": ".object .bad", "object=secret/canary&at=" + then: ".object .bad", "around=10": ".around .bad"} {
		evaluate[string](p, "location.hash = '#/pods?namespace=secret&"+view+"'")
		p.awaitText(part, "Not permitted.")
	}
	p.await("it is not shown as none", "!document.querySelector('.empty') && !/nothing changed/i.test(document.body.innerText)")
}

// A token is revoked while its owner looks: the page asks for another one, shows nothing as
// live meanwhile, and goes on with it where it was.
func TestATokenIsRevoked(t *testing.T) {
	s, c := startGuarded(t, server.Options{})
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p := visit(t, s, "#/pods?namespace=shop&object=shop/web", "401", "403")
	p.awaitText(".token", "Who are you?")
	p.press("jane-token", enter)
	p.awaitText(".fresh.good", "live")
	p.awaitText(".object", "app:1")
	c.RemoveUser("jane-token")
	p.awaitText(".token", "The cluster does not accept this token.")
	p.awaitText(".fresh.bad", "as of ")
	p.await("what is old looks old", "document.querySelector('.rows.stale') && document.querySelector('.object.stale')")
	p.press("jane-again", enter)
	p.awaitText(".fresh.good", "live")
	p.await("it goes on", "!document.querySelector('.stale, .token') && document.querySelector('.object').innerText.includes('app:1')")
}

// A caller gives a token and sees what it may read; not permitted is not shown as none.
func TestToken(t *testing.T) {
	var mayReadShop atomic.Bool
	mayReadShop.Store(true)
	c := fakeapi.New(fakeapi.Options{
		Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "jane-token": {Name: "jane"}},
		Allow: func(u fakeapi.User, a fakeapi.Access) bool {
			return u.Name == "mirror" || u.Name == "jane" && a.Namespace == "shop" && a.Resource == "pods" && mayReadShop.Load()
		},
	})
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	config.BearerToken = "mirror-token"
	gate, err := access.NewGate(access.Options{AllowTTL: 200 * time.Millisecond, DenyTTL: 50 * time.Millisecond, NamespaceDenyTTL: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	s := serve(t, config, server.Options{Gate: gate})
	putPod(t, c, "shop", "web", corev1.PodRunning)
	putPod(t, c, "secret", "hidden", corev1.PodRunning)
	p := visit(t, s, "#/pods", "400", "401", "403")
	p.awaitText(".token", "Who are you?")
	p.press("wrong", enter)
	p.awaitText(".token", "does not accept this token")
	p.press("jane-token", enter)
	p.awaitText(".fresh.good", "live")
	p.awaitText(".summary", "only what you may read: namespace shop")
	p.await("the pod that may be read is shown, and no other", "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[1].innerText).join() === 'web'")
	p.await("the token is nowhere but in memory", "!location.href.includes('jane') && !document.cookie && !localStorage.length && !sessionStorage.length && !document.documentElement.innerHTML.includes('jane-token')")
	p.press(":")
	p.press("nodes", enter)
	p.awaitText(".trouble", "Not permitted.")
	p.await("it is not shown as none", "!document.querySelector('.empty')")
	p.press(":")
	p.press("pods /shop", enter)
	p.await("the pod is shown", "document.querySelector('tbody')?.innerText.includes('web')")
	p.press(enter)
	p.awaitText(".object .scroll", "Events Not permitted.")
	p.press("h")
	p.awaitText(".object .bad", "this server keeps no history")
	p.press(escape, "p")
	p.awaitText(".pipeline .bad", "Not permitted.")
	p.press(escape)
	p.await("the pod is shown", "document.querySelector('tbody')?.innerText.includes('web')")
	mayReadShop.Store(false) // while jane looks
	p.awaitText(".trouble", "Not permitted.")
	p.awaitText(".fresh.bad", "as of ")
}
