package page_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
)

// Pictures writes the pictures of the documentation into the folder PICTURES.
func TestPictures(t *testing.T) {
	folder := os.Getenv("PICTURES")
	if folder == "" {
		t.Skip("PICTURES names no folder for the pictures")
	}
	configs := map[string]*rest.Config{}
	configs["prod"], _ = runDemo(t, demo.Workload{Seed: 1})
	configs["staging"], _ = runDemo(t, demo.Workload{Seed: 2})
	s := serveAll(t, configs, remember(t))
	for _, picture := range []struct {
		name, theme, fragment, ready string
		width, height                int64
		keys                         []string
	}{
		{"page-light", "light", "#/pods?cluster=prod&sort=Restarts&descending", "document.querySelectorAll('tbody tr').length > 20", 1280, 720, []string{"j", "j"}},
		{"page-dark", "dark", "#/pods?cluster=prod&sort=Restarts&descending", "document.querySelectorAll('tbody tr').length > 20", 1280, 720, []string{"j", "j"}},
		{"page-object", "light", "#/deployments?cluster=prod", "document.querySelector('.object .field')", 1280, 720, []string{"j", enter}},
		{"page-prompt", "dark", "#/nodes?cluster=prod", "document.querySelector('.prompt li button')", 1280, 720, []string{":", "po"}},
		{"page-phone", "light", "#/pods?cluster=prod", "document.querySelectorAll('tbody tr').length > 5", 390, 780, nil},
		{"page-clusters", "dark", "#/pods?cluster=prod,staging&columns=.spec.nodeName", "document.querySelectorAll('tbody tr').length > 20", 1280, 720, []string{"j"}},
		{"page-changes", "light", "#/pods?cluster=prod", "document.querySelectorAll('.around li').length > 3 && document.querySelector('svg .changes')", 1280, 720, []string{"x"}},
	} {
		p := visit(t, s, "#/pods?cluster=prod", "410")
		theme := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: picture.theme}}}
		p.do(chromedp.EmulateViewport(picture.width, picture.height), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, theme)
			return err
		}))
		evaluate[string](p, "location.hash = "+`"`+picture.fragment+`"`)
		p.awaitText(".fresh.good", "live")
		p.await("there are rows", "document.querySelectorAll('tbody tr').length > 5")
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
