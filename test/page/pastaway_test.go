package page_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
)

// While a moment of the past is shown, the server is restarted and the API server goes away:
// what is shown stays what it was, and is never taken for now.
func TestAPastViewOutlivesTheServerAndTheCluster(t *testing.T) {
	s, c := startRemembering(t)
	putPod(t, c, "shop", "web", corev1.PodPending)
	p := visit(t, s, "#/pods", append([]string{"410"}, away...)...)
	p.awaitText(".summary", "1 Pending")
	then := remembers(t, s, "pods")
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p.awaitText(".summary", "1 Running")
	evaluate[string](p, "location.hash = '#/pods?at="+then+"'")
	p.awaitText(".fresh.wait", "past · ")
	p.awaitText(".summary", "1 Pending")

	s.stop()
	p.awaitText(".fresh.bad", "connection lost")
	p.await("what is old looks old", "document.querySelector('.rows.stale')?.innerText.includes('Pending')")
	s.start()
	p.awaitText(".fresh.wait", "past · ")
	p.await("it is as it was", "document.querySelector('tbody').innerText.includes('Pending') && !document.querySelector('.stale, .trouble')")

	c.SetDown(true)
	p.do(chromedp.Reload())
	p.awaitText(".fresh.wait", "past · ")
	p.awaitText(".summary", "1 Pending")
	p.press("j", enter)
	p.awaitText(".object .facts", "Pending")
	p.press(escape, "n")
	p.awaitText(".fresh.bad", "stale for ")
	p.awaitText(".summary", "1 Running")
	c.SetDown(false)
	p.awaitText(".fresh.good", "live")
}
