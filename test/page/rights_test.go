package page_test

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

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
