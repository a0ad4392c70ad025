package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

func TestHelpIsForPeople(t *testing.T) {
	for args, says := range map[string][]string{
		"":                     {"tidings watch", "--demo", "tidings serve --demo"},
		"--help":               {"Usage:", "Examples:", "--kubeconfig file", "--context context"},
		"watch --help":         {"tidings watch deploy,rs,pods -A", "--since resourceVersion", "-l, --selector selector", "Ctrl-C"},
		"get --help":           {"tidings get pod web-1 web-2 -o yaml", "--no-headers"},
		"api-resources --help": {"can be listed and watched"},
		"completion --help":    {"bash", "zsh", "fish", "powershell"},
	} {
		out, errs, code := runIn(t.Context(), strings.Fields(args)...)
		if code != 0 || errs != "" {
			t.Errorf("%s: %d, %s", args, code, errs)
		}
		contains(t, out, says...)
		for line := range strings.Lines(out) {
			if len([]rune(line)) > 140 {
				t.Errorf("%s: a line of %d characters: %s", args, len([]rune(line)), line)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	text, errs, code := runIn(t.Context(), "version")
	if code != 0 || errs != "" || !strings.HasPrefix(text, "tidings ") {
		t.Errorf("%d %q %s", code, text, errs)
	}
	if out, errs, code := runIn(t.Context(), "--version"); code != 0 || errs != "" || out != text {
		t.Errorf("--version says %q %s", out, errs)
	}
	for output, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.UnmarshalStrict(b, v) },
	} {
		out, _, _ := runIn(t.Context(), "version", "-o", output)
		var v struct {
			Version, Commit, Date, Go, Platform string
			Modified                            bool
		}
		if err := decode([]byte(out), &v); err != nil || !strings.HasPrefix(text, "tidings "+v.Version+" ("+v.Go+", "+v.Platform+")\n") {
			t.Errorf("%s: %v: %s", output, err, out)
		}
	}
	if _, errs, code := runIn(t.Context(), "version", "-o", "x"); code != 1 || !strings.Contains(errs, "choose json, yaml") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestWithoutAnyCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "gone"))
	for _, args := range []string{"watch pods", "get pods", "api-resources"} {
		_, errs, code := runIn(t.Context(), strings.Fields(args)...)
		if code != 1 || !strings.Contains(errs, "no kubeconfig found") {
			t.Errorf("%s: %d, %s", args, code, errs)
		}
	}
}

func TestDemoNeedsNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "gone"))
	for args, says := range map[string]string{
		"watch deploy,nodes -A --once": "ADDED",
		"get pods -A":                  "Running",
	} {
		out, errs, code := runIn(t.Context(), append(strings.Fields(args), "--demo")...)
		if code != 0 || errs != "" || !strings.Contains(out, says) {
			t.Errorf("%s: %d, %s, %.500s", args, code, errs, out)
		}
	}
}

func TestInterruptedGetSaysNothing(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, errs, code := runIn(ctx, "get", "pods", "--kubeconfig", w.kubeconfig)
	if code != 130 || out+errs != "" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
}

func TestLogLevel(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	w.clusters[0].Compact()
	s := w.begin("watch", "pods", "--since", "1", "-v", "info")
	for !strings.Contains(s.remark(), "level=") {
	}
	if code := s.stop(); code != 0 {
		t.Error(code)
	}
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	w.create(pod("web-1"), pod("web-2"))
	for typed, want := range map[string][]string{
		"watch dep":             {"deployments\tDeployment apps/v1"},
		"watch pods,dep":        {"pods,deployments\t"},
		"watch pods/":           {"pods/web-1", "pods/web-2"},
		"watch -n kube-s":       {"kube-system"},
		"get pods web":          {"web-1", "web-2"},
		"get pods web-1 web":    {"web-2"},
		"get events":            {"events\tEvent v1"},
		"watch -o d":            {"diff"},
		"watch pods --context ": {"a\thttp://127.0.0.1"},
		"-v d":                  {"debug"},
	} {
		args := strings.Split(typed, " ")
		args = append([]string{cobra.ShellCompRequestCmd, "--kubeconfig", w.kubeconfig}, args...)
		out, _, _ := runIn(t.Context(), args...)
		for _, line := range want {
			if !strings.Contains("\n"+out, "\n"+line) {
				t.Errorf("%q gives %q, without %q", typed, out, line)
			}
		}
		if !strings.Contains(out, "\n:4\n") && !strings.HasPrefix(out, ":4\n") {
			t.Errorf("%q would complete file names: %q", typed, out)
		}
	}
	t.Setenv("KUBECONFIG", "/nowhere")
	if out, _, _ := runIn(t.Context(), cobra.ShellCompRequestCmd, "watch", "po"); !strings.HasPrefix(out, ":4") {
		t.Errorf("without a cluster: %q", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _, code := runIn(t.Context(), "completion", shell); code != 0 || len(out) < 1000 {
			t.Errorf("%s: %d", shell, code)
		}
	}
	if _, err := os.Stat("/nowhere"); err == nil {
		t.Fatal("the test is about nothing")
	}
}
