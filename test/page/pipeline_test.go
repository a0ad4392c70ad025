package page_test

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The pipeline says how each resource is followed, what is wrong, and what would help.
func TestPipeline(t *testing.T) {
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodRunning)
	watch, err := http.Get("http://" + s.address + "/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	p := visit(t, s, "#/pods")
	p.awaitText(".fresh.good", "live")
	evaluate[bool](p, "document.querySelector('.to-pipeline').click() ?? true")
	p.awaitText(".pipeline tbody", "pods.v1")
	p.awaitText(".pipeline tbody", "watching")
	p.awaitText(".pipeline tbody", "caught up")
	p.awaitText(".pipeline h2", "demo ok")
	p.awaitText(".fresh.good", "live")
	c.SetDown(true)
	p.awaitText(".wrong", "See whether the API server can be reached")
	p.awaitText(".pipeline tbody", "last failure")
	p.awaitText(".pipeline h2", "demo failing")
	c.SetDown(false)
	p.awaitText(".pipeline h2", "demo ok")
	p.await("nothing is wrong", "!document.querySelector('.wrong')")
	p.press("?")
	p.awaitText(".help", "the pipeline: how fresh the mirror is")
	p.press(escape)
	p.press(escape)
	p.awaitText(".summary", "1 pods")
	p.press(":")
	p.press("pipeline", enter)
	p.awaitText(".pipeline tbody", "pods.v1")
	p.await("the view is in the URL", "location.hash === '#/pipeline'")
}
