package cli_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// On a terminal a line fits, however long the names are; elsewhere nothing is
// shortened.
func TestWatchLinesFitTheTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	long := strings.Repeat("long-", 40)
	w.create(pod("web-1"), pod(long+"x7f2p"), pod(long+"q9d4k"))
	for _, contexts := range []string{"a", "*"} {
		for _, width := range []int{0, 60, 80, 120} {
			var out strings.Builder
			code := cli.Run(t.Context(), cli.IO{Out: &out, Err: io.Discard, OutTerminal: width > 0, OutWidth: width},
				"watch", "pods,ns", "--once", "--context", contexts, "--kubeconfig", w.kubeconfig)
			contains(t, out.String(), "default/web-1 ", "x7f2p ", "q9d4k ")
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
					t.Errorf("width %d: a line of %d: %s", width, n, line)
				}
			}
			if whole := strings.Contains(out.String(), "default/"+long+"x7f2p"); code != 0 || whole != (width == 0) {
				t.Errorf("width %d: %d, %s", width, code, out.String())
			}
		}
	}
}

// A change has the time of its arrival, an object that was there before has none.
func TestWatchTimes(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	lines, events := w.begin("watch", "pods", "-L", "app,tier", "--show-labels"), w.begin("watch", "pods", "-o", "json")
	lines.expect("- ADDED Pod default/p * web <none> app=web")
	if e := events.line(); strings.Contains(e, `"time"`) {
		t.Error(e)
	}
	w.update("p", func(p *corev1.Pod) { p.Labels = nil })
	changed := lines.line()
	if !alike(changed, "* MODIFIED Pod default/p * <none> <none> <none>") || strings.Count(strings.Fields(changed)[0], ":") != 2 {
		t.Error(changed)
	}
	contains(t, events.line(), `{"type":"MODIFIED","time":"20`)
	if _, errs, code := w.run("watch", "pods", "-o", "json", "--show-labels"); code != 1 || !strings.Contains(errs, "not for -o json") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestWatchPrintsAsGetDoes(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	for flags, want := range map[string][2]string{
		"-o name":                             {"pod/p", "pod/p"},
		"-o jsonpath={.metadata.name}{'\\n'}": {"p", "p"},
		"-o go-template={{.type}}-{{.object.metadata.name}}{{'\\n'}} --output-watch-events":    {"ADDED-p", "MODIFIED-p"},
		"-o custom-columns=T:.type,N:.object.metadata.name --output-watch-events --no-headers": {"ADDED p", "MODIFIED p"},
	} {
		flags = strings.NewReplacer(`'\n'`, `"\n"`).Replace(flags)
		s := w.begin(append([]string{"watch", "pods"}, strings.Fields(flags)...)...)
		s.expect(want[0])
		w.update("p", func(p *corev1.Pod) { p.Spec.NodeName += "n" })
		s.expect(want[1])
		s.stop()
	}
	_, errs, code := runIn(context.Background(), "watch", "pods", "-o", "jsonpath={", "--kubeconfig", w.kubeconfig)
	if code != 1 || !strings.Contains(errs, "unclosed action") {
		t.Errorf("%d %s", code, errs)
	}
}
