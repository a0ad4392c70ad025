package page_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Pictures writes the pictures of the documentation into the folder PICTURES.
func TestPictures(t *testing.T) {
	folder := os.Getenv("PICTURES")
	if folder == "" {
		t.Skip("PICTURES names no folder for the pictures")
	}
	configs := map[string]*rest.Config{}
	config, c := runDemo(t, demo.Workload{Seed: 1}, fakeapi.Options{})
	configs["prod"] = config
	configs["staging"], _ = runDemo(t, demo.Workload{Seed: 2}, fakeapi.Options{})
	s := serveAll(t, configs, withHistory(t))
	rollOut(t, s, c)
	for _, picture := range []struct {
		name, theme, fragment, ready string
		width, height                int64
		keys                         []string
	}{
		{"page-light", "light", "#/pods?cluster=prod&sort=Restarts&descending", "document.querySelectorAll('tbody tr').length > 20", 1280, 720, []string{"j", "j"}},
		{"page-dark", "dark", "#/pods?cluster=prod&sort=Restarts&descending", "document.querySelectorAll('tbody tr').length > 20", 1280, 720, []string{"j", "j"}},
		{"page-prompt", "dark", "#/nodes?cluster=prod", "document.querySelector('.prompt li button')", 1280, 720, []string{":", "po"}},
		{"page-phone", "light", "#/pods?cluster=prod", "document.querySelectorAll('tbody tr').length > 5", 390, 780, nil},
		{"page-clusters", "dark", "#/pods?cluster=prod,staging&columns=.spec.nodeName", "document.querySelectorAll('tbody tr').length > 20", 1280, 720, []string{"j"}},
		{"page-changes", "light", "#/pods?cluster=prod", "document.querySelectorAll('.around li').length > 3 && document.querySelector('svg .count')", 1280, 720, []string{"x"}},
		{"page-object", "light", "#/pods?cluster=prod&sort=Restarts&descending", "document.querySelector('.object .events li') && document.querySelector('.scroll > .facts')", 1280, 800, []string{enter}},
		{"page-object-phone", "dark", "#/pods?cluster=prod&sort=Restarts&descending", "document.querySelector('.object .events li') && document.querySelector('.scroll > .facts')", 390, 780, []string{enter}},
		{"page-timeline", "light", "#/deployments?cluster=prod&object=shop/frontend&view=timeline", "document.querySelectorAll('.lanes li').length > 8 && document.querySelectorAll('.changes > li').length > 5", 1280, 800, nil},
		{"page-timeline-phone", "dark", "#/deployments?cluster=prod&object=shop/frontend&view=timeline", "document.querySelectorAll('.lanes li').length > 8 && document.querySelectorAll('.changes > li').length > 5", 390, 780, nil},
		{"page-tree", "dark", "#/deployments?cluster=prod&object=shop/cart&view=tree", "document.querySelectorAll('.relatives li').length > 9", 1280, 800, []string{"j", "j"}},
		{"page-tree-phone", "light", "#/deployments?cluster=prod&object=shop/cart&view=tree", "document.querySelectorAll('.relatives li').length > 9", 400, 780, nil},
		{"page-pipeline", "dark", "#/pipeline", "document.querySelectorAll('.pipeline tbody tr').length > 3", 1280, 560, nil},
		{"page-pipeline-phone", "light", "#/pipeline", "document.querySelectorAll('.pipeline tbody tr').length > 3", 390, 780, nil},
	} {
		p := visit(t, s, "#/pods?cluster=prod", "410")
		p.theme(picture.theme)
		p.do(chromedp.EmulateViewport(picture.width, picture.height))
		evaluate[string](p, "location.hash = "+`"`+picture.fragment+`"`)
		p.awaitText(".fresh.good", "live")
		p.await("there are rows", "document.querySelectorAll('tbody tr').length > 3")
		p.await("they are in order", "!location.hash.includes('Restarts') || Number.parseInt(document.querySelector('tbody tr:not(.space)').cells[4].innerText) > 1")
		p.press(picture.keys...)
		p.await("the picture is ready", picture.ready)
		p.await("nothing glows", "document.getAnimations().length === 0")
		content, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, picture.name+".png"), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// rollOut begins a rollout in the demo, once what the pictures show is mirrored.
func rollOut(t *testing.T, s *served, c *demo.Cluster) {
	for _, resource := range []string{"deployments", "replicasets", "pods", "events", "nodes", "services"} {
		resp, err := http.Get("http://" + s.address + "/" + resource + "?limit=1")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	err := c.Modify(appsv1.SchemeGroupVersion.WithResource("deployments"), "shop", "frontend", func(o fakeapi.Object) (fakeapi.Object, error) {
		d := o.(*appsv1.Deployment).DeepCopy()
		d.Spec.Template.Spec.Containers[0].Image += "-canary"
		return d, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
