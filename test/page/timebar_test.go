package page_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
)

// drag moves the mouse with a pressed button from one part of an element to another.
func (t *tab) drag(selector string, from, to float64) {
	t.Helper()
	for _, step := range []struct {
		kind input.DispatchMouseEventType
		at   float64
	}{{input.DispatchMouseEventTypeMousePressed, from}, {input.DispatchMouseEventTypeMouseMoved, (from + to) / 2}, {input.DispatchMouseEventTypeMouseMoved, to}, {input.DispatchMouseEventTypeMouseReleased, to}} {
		// At each step, as what the page shows of the step before may make the element narrower.
		box := evaluate[map[string]float64](t, fmt.Sprintf("(({x, y, width, height}) => ({x, y: y + height / 2, width}))(document.querySelector(%q).getBoundingClientRect())", selector))
		event := input.DispatchMouseEventParams{Type: step.kind, X: box["x"] + box["width"]*step.at, Y: box["y"], Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1}
		t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, input.DispatchMouseEvent, event)
			return err
		}))
	}
}

// The bar shows the changes of what is selected and the gaps, and is moved by the mouse and by
// keys.
func TestTheTimeBar(t *testing.T) {
	s, c := startRemembering(t)
	app := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
	}
	putPod(t, c, "shop", "web", corev1.PodPending, app("web"))
	p := visit(t, s, "#/pods", "410", "503")
	p.awaitText(".fresh.good", "live")
	remembers(t, s, "pods")
	putPod(t, c, "shop", "web", corev1.PodRunning, app("web"))
	p.awaitText(".summary", "1 Running")
	c.SetDown(true)
	putPod(t, c, "shop", "web", corev1.PodFailed, app("web"))
	p.awaitText(".fresh.bad", "stale for ")
	c.Compact() // the changes cannot be watched any more
	c.SetDown(false)
	p.awaitText(".fresh.good", "live")
	recorded(t, s, "/pods?changes=true", `"Failed"`) // the page asks once
	p.press("z")                                     // it asks anew
	p.await("the gap and the changes are drawn", "document.querySelector('.bar-of-time .gap') && document.querySelector('.bar-of-time .count')")
	p.press("x")
	p.awaitText(".around li.gap", "changes may be missing")
	p.await("the gap is in its place", "/Pending → Running[^]*gap until[^]*Running → Failed/.test(document.querySelector('.around').innerText)")
	p.press(escape)

	drawn := func() string { return evaluate[string](p, "document.querySelector('.bar-of-time svg').innerHTML") }
	p.press(":")
	p.press("pods app=db", enter)
	p.await("nothing of that label has changed", "!document.querySelector('.bar-of-time .count') && document.querySelector('.bar-of-time svg')")
	if bar := drawn(); bar == "" {
		t.Error("the bar is empty")
	}
	p.press(":")
	p.press("pods app=web", enter)
	p.await("what has changed is counted", "document.querySelector('.bar-of-time .count')")

	// An answer about what was selected before changes nothing.
	evaluate[bool](p, `(() => {
		const real = window.fetch;
		window.fetch = async (path, init) => {
			if (!String(path).includes("counts=") || !String(path).includes("queue")) return real(path, init);
			await new Promise((release) => { window.release = release });
			try { return await real(path, init) } finally { setTimeout(() => { window.late = true }, 100) }
		};
		return true;
	})()`)
	p.press(":")
	p.press("pods app=queue", enter)
	p.await("it is asked for", "window.release")
	p.press(":")
	p.press("pods app=web", enter)
	p.await("what has changed is counted", "location.hash.includes('web') && document.querySelector('.bar-of-time .count')")
	evaluate[bool](p, "window.release() ?? true")
	p.await("the answer has come", "window.late")
	if !evaluate[bool](p, "!!document.querySelector('.bar-of-time .count')") {
		t.Error("the bar is that of another selection")
	}
	p.press("/")
	p.press("web", enter)
	p.awaitText(".counted", "counted without the filter")
	p.press(escape)
	p.await("nothing is left to say", "!document.querySelector('.counted')")

	p.drag(".moment", 0.9, 0.25)
	p.await("the moment is that of the place", "(() => { const e = document.querySelector('.moment'), at = Date.parse(new URLSearchParams(location.hash.split('?')[1]).get('at')); return Math.abs((at - e.min) / (e.max - e.min) - 0.25) < 0.03 })()")
	p.awaitText(".trouble", "begins at")
	p.awaitText(".time.past", "ago")
	p.drag(".moment", 0.25, 1)
	p.await("it is now again", "!location.hash.includes('at=') && document.querySelector('.fresh.good')")
	p.press("b")
	p.do(keyLeft)
	p.await("an arrow goes back", "location.hash.includes('at=')")
	p.do(chromedp.KeyEvent(kb.End))
	p.await("the end is now", "!location.hash.includes('at=') && document.querySelector('.fresh.good')")
	p.do(chromedp.KeyEvent(kb.Home))
	// The bar is of hours, and may be drawn anew meanwhile: it begins later then, by what the test has taken.
	p.await("the beginning is that of the bar", "Math.abs(Date.parse(new URLSearchParams(location.hash.split('?')[1]).get('at')) - document.querySelector('.moment').min) < 60_000")
}
