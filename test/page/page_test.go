package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
)

// A pod is found from the start page without a mouse.
func TestFindAPodByKeysAlone(t *testing.T) {
	s, _ := startDemo(t, demo.Workload{Seed: 1})
	p := visit(t, s, "")
	p.awaitText(".fresh", "live")
	p.await("there are rows", "document.querySelectorAll('tbody tr:not(.space)').length > 20")
	p.press(":")
	p.await("the prompt is open", "document.activeElement.closest('.prompt')")
	p.press("depl")
	p.awaitText(".prompt li", "deployments")
	p.press(kb.Tab, "/kube-system", enter)
	p.await("the deployments are shown", "location.hash === '#/deployments?namespace=kube-system' && document.querySelector('tbody')?.innerText.includes('coredns')")
	p.press(":")
	p.press("pods", enter)
	p.awaitText(".summary", "Running")
	p.press("/")
	p.press("coredns")
	p.await("the rows are filtered", "location.hash.includes('filter=coredns') && [...document.querySelectorAll('tbody tr:not(.space)')].every((r) => r.innerText.includes('coredns')) && /\\sof\\s/.test(document.querySelector('.summary').innerText)")
	p.press(enter)
	p.press("j", "k", enter)
	p.awaitText(".object .command", "kubectl describe pods coredns-")
	p.press("y")
	p.awaitText(".object pre", "kind: Pod")
	p.awaitText(".object pre", "k8s-app: kube-dns")
	p.awaitText(".object .command", "kubectl get pods coredns-")
	p.press(escape)
	p.await("the object is closed", "!document.querySelector('.object')")
	p.press(escape)
	p.await("the filter is gone", "!location.hash.includes('filter')")
	p.press("?")
	p.awaitText(".help", "copy as a kubectl command, as a tidings command")
	p.press(escape)
	p.await("the keys are closed", "!document.querySelector('.help')")
	p.do(chromedp.NavigateBack())
	p.await("back goes back", "location.hash.includes('object=') || location.hash.includes('deployments')")
}

func TestSortFilterAndScroll(t *testing.T) {
	s, c := startEmpty(t)
	const pods = 2000
	for i := range pods {
		putPod(t, c, "shop", fmt.Sprintf("pod-%d", i), []corev1.PodPhase{corev1.PodRunning, corev1.PodPending}[i%2])
	}
	p := visit(t, s, "")
	p.awaitText(".summary", "2,000")
	p.awaitText(".summary", "1,000 Pending")
	p.press("2")
	p.await("it is sorted by name, by the numbers in it", "document.querySelectorAll('tbody tr:not(.space)')[2]?.innerText.includes('pod-2\\t')")
	p.press("2")
	p.await("it is sorted the other way round", "document.querySelector('th[aria-sort=descending]') && document.querySelectorAll('tbody tr:not(.space)')[0]?.innerText.includes('pod-1999')")
	p.press("G")
	p.await("the last row is in sight", `(() => { const r = [...document.querySelectorAll("tr")].find((r) => r.getAttribute("aria-rowindex") === "2001"); return r?.innerText.includes("pod-0\t") && r.getBoundingClientRect().bottom <= innerHeight })()`)
	if rows := evaluate[int](p, "document.querySelectorAll('tr').length"); rows > 300 {
		t.Errorf("%d rows are in the page", rows)
	}
	p.press("g", "0", "/")
	p.press("pending !pod-1")
	p.awaitText(".summary", fmt.Sprintf("%d of 2,000", 1000-556))
	if names := p.column("Name"); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "pod-1") }) {
		t.Errorf("the filter lets them through: %q", names)
	}
	p.press(enter, "w")
	p.await("all columns are shown", "[...document.querySelectorAll('th')].some((h) => h.innerText === 'Node')")
	p.do(chromedp.Reload())
	p.await("the view is that of the URL", "document.querySelector('.summary')?.innerText.includes('of 2,000') && [...document.querySelectorAll('th')].some((h) => h.innerText === 'Node')")
}

func TestAChangeAppearsAndGlows(t *testing.T) {
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodPending)
	putPod(t, c, "shop", "zoo", corev1.PodRunning)
	p := visit(t, s, "#/po?namespace=shop")
	p.await("the pod is shown", "document.querySelector('td.wait')?.innerText === 'Pending'")
	if before := evaluate[string](p, "document.querySelector('.glow-a, .glow-b')?.innerText ?? ''"); before != "" {
		t.Errorf("%q glows without a change", before)
	}
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p.await("the change is shown, and it alone glows", "[...document.querySelectorAll('.glow-a, .glow-b')].map((e) => e.innerText).join() === 'Running'")
	putPod(t, c, "shop", "new", corev1.PodRunning)
	p.await("the new row glows", "[...document.querySelectorAll('tr.glow-a, tr.glow-b')].map((e) => e.cells[0].innerText).join() === 'new'")
	putPod(t, c, "elsewhere", "another", corev1.PodRunning)
	if err := c.Delete(podResource, "shop", "zoo"); err != nil {
		t.Fatal(err)
	}
	p.await("the deleted row goes", "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[0].innerText).join() === 'new,web'")
}

// A server that is restarted: the page says that it has lost it, shows nothing old as
// live, and goes on by itself.
func TestTheServerIsRestarted(t *testing.T) {
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodPending)
	p := visit(t, s, "", away...)
	p.awaitText("td.wait", "Pending")
	s.stop()
	p.awaitText(".fresh.bad", "connection lost · as of ")
	p.awaitText(".trouble", "not live")
	p.await("what is old looks old", "document.querySelector('.rows.stale')?.innerText.includes('Pending')")
	putPod(t, c, "shop", "web", corev1.PodRunning)
	s.start()
	p.awaitText(".fresh.good", "live")
	p.await("it goes on", "document.querySelector('tbody').innerText.includes('Running') && !document.querySelector('.stale, .trouble')")
}

// The API server is away: the server answers, and the page says that it is stale.
func TestTheClusterIsAway(t *testing.T) {
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p := visit(t, s, "")
	p.awaitText(".fresh.good", "live")
	c.SetDown(true)
	p.awaitText(".fresh.bad", "stale for ")
	c.SetDown(false)
	p.awaitText(".fresh.good", "live")
}

func TestWhatDoesNotExistIsSaid(t *testing.T) {
	s, _ := startEmpty(t)
	p := visit(t, s, "#/nonsense", "404", "400")
	p.awaitText(".trouble", "nonsense")
	p.awaitText(".trouble", "There are:")
	p.press(":")
	p.press("nodes", enter)
	p.awaitText(".empty", "There are none.")
	p.press(":")
	p.press("pods a=b=c", enter)
	p.awaitText(".trouble", "labelSelector")
}

// The chosen row is that of the open object, in whatever way it was opened, and stays where it
// is when the object is looked at in other ways.
func TestChosenRow(t *testing.T) {
	s, c := startEmpty(t)
	for i := range 300 {
		putPod(t, c, "shop", fmt.Sprintf("pod-%03d", i), corev1.PodRunning)
	}
	for _, name := range []string{"pod-004", "pod-005"} {
		put(t, c, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}
	p := visit(t, s, "#/pods?object=shop/pod-005")
	chosen := func(name string) {
		t.Helper()
		p.await(name+" is chosen", "document.querySelector('tr.chosen')?.innerText.includes('"+name+"')")
	}
	chosen("pod-005")
	evaluate[string](p, "location.hash = '#/pods?object=shop/pod-009'")
	p.awaitText(".object h2", "pod-009")
	chosen("pod-009")
	p.press("y")
	p.awaitText(".object pre", "kind: Pod")
	p.press("d")
	p.awaitText(".object .facts", "Running")
	chosen("pod-009")
	p.press(escape)
	p.await("the object is closed", "!document.querySelector('.object')")
	p.press("j")
	chosen("pod-010")
	p.press("G")
	chosen("pod-299")
	p.press(enter)
	p.awaitText(".object h2", "pod-299")
	p.press("y")
	p.awaitText(".object pre", "kind: Pod")
	chosen("pod-299") // and in sight
	p.await("the table has not moved", "document.querySelector('tr.chosen').getBoundingClientRect().bottom <= innerHeight")
	evaluate[string](p, "location.hash = '#/replicasets?object=shop/pod-005'") // a row of that name was in the table before
	p.awaitText(".object h2", "ReplicaSet pod-005")
	chosen("pod-005")
	p.await("it is the second row", "document.querySelector('tr.chosen').getAttribute('aria-rowindex') === '3'")
}
