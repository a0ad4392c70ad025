package page_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// Measure prints how long a user of a table of 100,000 pods waits: from the navigation, or
// from a key, until the browser draws the rows.
func TestMeasure(t *testing.T) {
	if os.Getenv("MEASURE") == "" {
		t.Skip("MEASURE is not set")
	}
	const pods = 100_000
	c := fakeapi.New(fakeapi.Options{})
	for pod := range samplepods.All(pods, 1) {
		pod.ResourceVersion = ""
		if _, err := c.Put(pod); err != nil {
			t.Fatal(err)
		}
	}
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	s := serve(t, config, server.Options{})
	p := visit(t, s, "#/pods") // mirrors them
	p.awaitText(".fresh.good", "live")
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("load of the machine: %s", load)
	p.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: noteFirstRows})
		return err
	}))
	firstRows := func(what string) {
		p.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+s.address+"/#/pods"))
		p.await("there are rows", "window.firstRows")
		fmt.Printf("first rows, of a table that is made %s: %.0f ms (the rows were asked for after %.0f ms, and came after %.0f)\n", what, evaluate[float64](p, "window.firstRows"),
			evaluate[float64](p, "performance.getEntriesByType('mark').find((m) => m.name === 'asked')?.startTime ?? 0"), evaluate[float64](p, "performance.getEntriesByType('mark').find((m) => m.name === 'came')?.startTime ?? 0"))
	}
	for range 3 {
		firstRows("already")
	}
	for range 3 {
		p.do(chromedp.Navigate("about:blank"))
		s.stop()
		s.start()
		firstRows("anew")
	}
	p.awaitText(".fresh.good", "live")
	for _, sort := range [][2]string{{"age", "6"}, {"name", "2"}, {"age again", "6"}, {"status", "4"}} {
		p.await("there is a watch", watchRows)
		p.press(sort[1])
		p.await("the rows are sorted", "window.changedAfter")
		fmt.Printf("sort by %s: %.0f ms\n", sort[0], evaluate[float64](p, "window.changedAfter"))
	}
	p.press("0", "/")
	for _, key := range []string{"1", "7", "-", "a"} {
		p.await("there is a watch", watchRows)
		p.press(key)
		p.await("the rows are filtered", "window.changedAfter")
		fmt.Printf("filter, %q: %.0f ms\n", key, evaluate[float64](p, "window.changedAfter"))
	}
}

// noteFirstRows notes when the first rows are drawn, when they were asked for, and when
// their first bytes came.
const noteFirstRows = `
	const asks = window.fetch;
	window.fetch = async (...args) => {
		const rows = String(args[0]).includes("window=true");
		if (rows) performance.mark("asked");
		const response = await asks(...args);
		if (rows) performance.mark("came");
		return response;
	};
	new MutationObserver((_, observer) => {
		if (document.querySelectorAll("tbody tr:not(.space)").length <= 10) return;
		observer.disconnect();
		requestAnimationFrame(() => setTimeout(() => (window.firstRows = performance.now())));
	}).observe(document, { subtree: true, childList: true });`

// watchRows notes how long after the next key other rows are drawn.
const watchRows = `(() => {
	const shown = () => document.querySelector(".summary").innerText + [...document.querySelectorAll("tbody tr:not(.space)")].slice(0, 20).map((r) => r.cells[1].innerText);
	const before = shown();
	window.changedAfter = 0;
	addEventListener("keydown", () => {
		const pressed = performance.now();
		const look = () => (shown() === before ? requestAnimationFrame(look) : (window.changedAfter = performance.now() - pressed));
		requestAnimationFrame(look);
	}, { capture: true, once: true });
	return true;
})()`
