package page_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
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

// Of several clusters one is away: its part says so, and the other one is what it was.
func TestPipelineOfSeveralClusters(t *testing.T) {
	clusters, configs := map[string]*fakeapi.Cluster{}, map[string]*rest.Config{}
	for _, name := range []string{"prod", "staging"} {
		c := fakeapi.New(fakeapi.Options{})
		config, stop := fakeapi.InProcess(c)
		t.Cleanup(stop)
		clusters[name], configs[name] = c, config
		putPod(t, c, "shop", "web", corev1.PodRunning)
	}
	s := serveAll(t, configs, server.Options{})
	p := visit(t, s, "#/pods?cluster=*")
	p.awaitText(".fresh.good", "live")
	p.press("p")
	part := func(name string) string {
		return "[...document.querySelectorAll('.pipeline section')].find((s) => s.querySelector('h2').innerText.startsWith('" + name + "'))"
	}
	p.await("both are shown", part("prod")+"?.querySelector('h2 .good') && "+part("staging")+"?.querySelector('h2 .good')")
	clusters["staging"].SetDown(true)
	p.await("one is away", "/staging failing/.test("+part("staging")+".innerText) && "+part("staging")+".querySelector('.wrong')")
	p.await("the other one is what it was", part("prod")+".querySelector('h2 .good') && !"+part("prod")+".querySelector('.wrong') && /watching/.test("+part("prod")+".innerText)")
	p.awaitText(".wrong", "See whether the API server can be reached")
	clusters["staging"].SetDown(false)
	p.await("it is back", part("staging")+".querySelector('h2 .good') && !document.querySelector('.wrong')")
}

// A watch whose reader is slow is shown as behind, by how many changes and for how long.
func TestPipelineShowsASlowWatch(t *testing.T) {
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodRunning)
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /pods?watch=true HTTP/1.1\r\nHost: %s\r\n\r\n", s.address); err != nil {
		t.Fatal(err)
	}
	p := visit(t, s, "#/pipeline")
	p.awaitText(".pipeline tbody", "1 caught up")
	for i := range 100 { // more than the kernel keeps for the reader
		putPod(t, c, "shop", fmt.Sprint("pod-", i), corev1.PodRunning, func(p *corev1.Pod) {
			p.Annotations = map[string]string{"note": strings.Repeat("x", 200<<10)}
		})
	}
	p.await("it is behind", "/1, 1 behind by up to [\\d,]+ changes? for \\d+s/.test(document.querySelector('.pipeline tbody').innerText)")
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	p.awaitText(".pipeline tbody", "1 caught up")
}
