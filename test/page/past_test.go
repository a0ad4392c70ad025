package page_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// startRemembering serves an empty cluster, with a history.
func startRemembering(tb testing.TB) (*served, *fakeapi.Cluster) {
	tb.Helper()
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	tb.Cleanup(stop)
	return serve(tb, config, withHistory(tb)), c
}

// The table, the counts and an object are shown as they were, and marked as past; and the
// page comes back to now.
func TestMoments(t *testing.T) {
	s, c := startRemembering(t)
	putPod(t, c, "shop", "web", corev1.PodPending)
	putPod(t, c, "shop", "old", corev1.PodRunning)
	p := visit(t, s, "#/pods", "410")
	p.awaitText(".summary", "1 Pending")
	p.await("the history has begun", "document.querySelector('.time')")
	recorded(t, s, "/pods?at=-1ms", `"Pending"`)
	then := instant()
	putPod(t, c, "shop", "web", corev1.PodRunning)
	putPod(t, c, "shop", "new", corev1.PodRunning)
	if err := c.Delete(podResource, "shop", "old"); err != nil {
		t.Fatal(err)
	}
	p.awaitText(".summary", "2 Running")
	names := func(want string) string {
		return "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[1].innerText + ' ' + r.cells[3].innerText).join() === '" + want + "'"
	}
	p.press(":")
	p.press("pods "+then, enter)
	p.await("the table is as it was", names("old Running,web Pending"))
	p.awaitText(".summary", "1 Pending")
	p.awaitText(".fresh.wait", "past · ")
	p.awaitText(".time.past", "ago")
	p.await("the moment is in the URL", "location.hash.includes('at=2')")
	p.press("j", enter)
	p.awaitText(".object .past", "As it was at")
	p.awaitText(".object .facts", "Pending")
	p.press("y")
	p.awaitText(".object pre", "phase: Pending")
	p.press(escape)
	p.await("the object is closed", "!document.querySelector('.object')")
	putPod(t, c, "shop", "later", corev1.PodRunning)
	p.press("x")
	p.awaitText(".around", "old deleted")
	p.awaitText(".around .fields", ".status.phase Pending → Running")
	p.awaitText(".around", "shop/new created")
	p.press(escape)
	p.await("the table is back, and is still that of the moment", names("old Running,web Pending"))
	p.press(escape)
	p.await("it is live again", "!location.hash.includes('at=') && document.querySelector('.fresh.good')")
	p.await("the table is that of now", names("later Running,new Running,web Running"))
	p.press("b")
	p.await("the bar has the focus", "document.activeElement.matches('.moment')")
	p.do(chromedp.KeyEvent(kb.ArrowLeft))
	p.await("an arrow goes back", "location.hash.includes('at=')")
	p.do(chromedp.KeyEvent(kb.Home)) // the arrow goes back by 15 s, and the history may be older
	p.await("it is the beginning of the bar", "Math.abs(Date.parse(new URLSearchParams(location.hash.split('?')[1]).get('at')) - document.querySelector('.moment').min) < 60_000")
	p.awaitText(".trouble", "history")
	p.press(escape, "n")
	p.awaitText(".fresh.good", "live")
	p.press("[")
	p.await("so does a bracket", "location.hash.includes('at=')")
	p.press(escape)
	p.awaitText(".fresh.good", "live")
	p.press("x")
	p.awaitText(".around", "later created")
}

// A gap is shown as one, and changes are read a page at a time.
func TestChangesInPages(t *testing.T) {
	s, c := startRemembering(t)
	putPod(t, c, "shop", "web", corev1.PodPending)
	p := visit(t, s, "#/pods?namespace=shop")
	p.awaitText(".summary", "1 Pending")
	for i := range 250 {
		putPod(t, c, "shop", "web", []corev1.PodPhase{corev1.PodRunning, corev1.PodPending}[i%2])
	}
	putPod(t, c, "other", "not-selected", corev1.PodRunning)
	putPod(t, c, "shop", "last", corev1.PodFailed)
	p.awaitText(".summary", "1 Failed")
	recorded(t, s, "/core/v1/pods/shop/last?at=-1ms", `"last"`) // the page asks once
	p.press("x")
	p.awaitText(".around", "200+ changes")
	evaluate[string](p, "[...document.querySelectorAll('.around button')].at(-1).click(), ''")
	p.awaitText(".around", "shop/last created")
	p.await("all are shown, and none of others", fmt.Sprintf("!document.querySelector('.around').innerText.includes('not-selected') && document.querySelectorAll('.around li:not(.gap)').length > %d", 250))
	p.await("the page is not slower for it", "document.querySelectorAll('*').length < 6000")
}
