package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// checker returns the source of axe-core, which npm installs as package-lock.json says.
func checker(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("the accessibility is not checked: ", err)
	}
	folder := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = folder
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	source, err := os.ReadFile(filepath.Join(folder, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// theme makes a tab look as in a system with a light or dark theme.
func (t *tab) theme(name string) {
	t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, media)
		return err
	}))
}

// axe returns what axe-core finds that is serious or worse.
func (t *tab) axe() []string {
	t.Helper()
	const run = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact))
		.map((v) => v.id + ": " + v.help + "\n" + v.nodes.slice(0, 4).map((n) => "  " + n.html.slice(0, 200) + " " + n.any.concat(n.all).map((c) => c.message).join("; ").slice(0, 300)).join("\n")))`
	var found []string
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		result, err := cdp.Call(ctx, target, cdruntime.Evaluate, cdruntime.EvaluateParams{Expression: run, AwaitPromise: new(true), ReturnByValue: new(true)})
		if err == nil && result.ExceptionDetails != nil {
			err = fmt.Errorf("%v", result.ExceptionDetails)
		}
		if err == nil {
			err = json.Unmarshal(result.Result.Value, &found)
		}
		return err
	}))
	return found
}

// axe-core finds nothing serious in any view, in either theme.
func TestAccessibility(t *testing.T) {
	source := checker(t)
	c := fakeapi.New(fakeapi.Options{}) // where nothing changes, and glows, by itself
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	s := serve(t, config, withHistory(t))
	for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded} {
		putPod(t, c, "shop", fmt.Sprint("pod-", i), phase)
	}
	p := visit(t, s, "#/pods", "410", "404", "400")
	p.await("there are rows", "document.querySelectorAll('tbody tr').length > 4")
	evaluate[bool](p, source+"\n;true")
	replicas := int32(2)
	putWorkload(t, c, replicas)
	views := []struct{ name, fragment, ready string }{
		{"table", "#/pods", "document.querySelector('td.bad') && document.querySelector('td.wait')"},
		{"an empty table", "#/pods?filter=nothing+has+this", "document.querySelector('.empty')"},
		{"a resource that does not exist", "#/nonsense", "document.querySelector('.trouble')"},
		{"at a glance", "#/deployments?object=shop/web", "document.querySelector('.object .containers') && document.querySelector('.object .facts')"},
		{"YAML", "#/deployments?object=shop/web&view=yaml", "document.querySelector('.object .fold')"},
		{"timeline", "#/deployments?object=shop/web&view=timeline", "document.querySelector('.lanes li:nth-child(2)')"},
		{"compare", "#/pods?object=shop/pod-1&view=compare&with=shop/pod-2", "document.querySelector('.object .fields li')"},
		{"pipeline", "#/pipeline", "document.querySelector('.pipeline tbody tr')"},
	}
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		for _, v := range views {
			evaluate[string](p, fmt.Sprintf("location.hash = %q", v.fragment))
			if v.name == "timeline" {
				p.await("the timeline is shown", v.ready)
				replicas++
				putWorkload(t, c, replicas)
				p.awaitText(".changes", fmt.Sprint("→ ", replicas))
			}
			p.await(v.name+" is shown", v.ready)
			p.await("nothing glows", "document.getAnimations().length === 0")
			if found := p.axe(); len(found) > 0 {
				t.Errorf("%s, %s:\n%s", v.name, theme, strings.Join(found, "\n"))
			}
		}
		p.press(":")
		p.await("the prompt is shown", "document.querySelector('.prompt:not([hidden])')")
		if found := p.axe(); len(found) > 0 {
			t.Errorf("prompt, %s:\n%s", theme, strings.Join(found, "\n"))
		}
		p.press(escape, "?")
		p.await("the keys are shown", "document.querySelector('.help')")
		if found := p.axe(); len(found) > 0 {
			t.Errorf("keys, %s:\n%s", theme, strings.Join(found, "\n"))
		}
		p.press(escape)
	}
}
