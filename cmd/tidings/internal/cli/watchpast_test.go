//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWatchSinceATime(t *testing.T) {
	p := newPast(t)
	s := p.begin("watch", "pods", "-l", "app=web", "--since", p.first, "-o", "diff", "--server", p.url)
	s.expect("* MODIFIED Pod default/web-1 *", "~ .spec.containers[web].image: web:1 → web:2",
		"* MODIFIED Pod default/web-1 *", "~ .status.phase: Pending → Running",
		"* DELETED Pod default/web-2 *", "* ADDED Pod default/web-3 *",
		"* MODIFIED Pod default/web-3 *", "+ .metadata.labels.later: \"true\"")
	p.update("web-3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	s.expect("* MODIFIED Pod default/web-3 *", "~ .status.phase: Pending → Running")
	p.update("web-3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	s.expect("* MODIFIED Pod default/web-3 *", "~ .status.phase: Running → Failed")
	if code := s.stop(); code != 0 {
		t.Error(code)
	}
	early := p.begin("watch", "pods", "--since", "2020-01-01T00:00:00Z", "--server", p.url)
	contains(t, early.remark(), "pods: the history begins at 20")
	early.stop()
	_, errs, code := p.run("watch", "pods", "--since", "-1m")
	if code != 1 {
		t.Error(code)
	}
	contains(t, errs, "keeps no past")
}

// While changes come, a watch that begins in the past delivers each once, in order.
func TestNothingIsLostBetweenThePastAndThePresent(t *testing.T) {
	p := newPast(t)
	const updates = 300
	half, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for i := range updates {
			p.update("web-1", func(p *corev1.Pod) { p.Labels["n"] = fmt.Sprint(i) })
			if i == updates/3 {
				close(half)
			}
		}
	}()
	defer func() { <-written }()
	select {
	case <-half:
	case <-written: // an update has failed
	}
	s := p.begin("watch", "pods", "--since", p.second, "-o", "json", "--server", p.url)
	last := 11 // the version of the second moment
	for range updates + 1 {
		var e struct {
			Type   string
			Object corev1.Pod
		}
		if err := json.Unmarshal([]byte(s.line()), &e); err != nil {
			t.Fatal(err)
		}
		if last++; e.Type != "MODIFIED" || e.Object.ResourceVersion != fmt.Sprint(last) {
			t.Fatalf("%s at resourceVersion %s comes after %d", e.Type, e.Object.ResourceVersion, last-1)
		}
	}
	if code := s.stop(); code != 0 {
		t.Error(code)
	}
}

// Values of Secrets are printed only by the outputs that print whole objects.
func TestThePastOfSecretsIsPrintedWithoutValues(t *testing.T) {
	w := newWorld(t)
	p := &past{world: w}
	p.server, p.url = w.serve("--resource", "secrets", "--history", filepath.Join(t.TempDir(), "history"), "--history-secrets")
	begin := p.momentOf(p.url+"/secrets", 0)
	put := func(annotations map[string]string, data map[string][]byte) {
		_, err := w.clusters[0].Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keys", Annotations: annotations}, Data: data})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(nil, map[string][]byte{"password": []byte("canary-1")})
	first := p.momentOf(p.url+"/secrets", 1)
	put(nil, map[string][]byte{"password": []byte("canary-02"), "user": []byte("canary-user")})
	put(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"password":"Y2FuYXJ5LTAy"}}`}, map[string][]byte{"password": []byte("canary-02")})
	p.momentOf(p.url+"/secrets", 3)
	source := []string{"--server", p.url}
	all := ""
	for _, args := range [][]string{{"history", "secrets", "--since", begin}, {"history", "secrets", "--since", begin, "-o", "diff"}, {"diff", "secrets", "--from", first}} {
		want := 0
		if args[0] == "diff" {
			want = 1
		}
		out, errs := p.runPast(source, want, args...)
		all += out + errs
	}
	s := p.begin("watch", "secrets", "--since", begin, "-o", "diff", "--server", p.url)
	for range 6 {
		all += s.line() + "\n"
	}
	s.stop()
	contains(t, all, "~ .data.password: (8 bytes) → (9 bytes), not shown", "+ .data.user: (11 bytes)", "- .data.user: (11 bytes)")
	for _, value := range []string{"canary", "Y2FuYXJ5"} {
		if strings.Contains(all, value) {
			t.Errorf("%s is printed:\n%s", value, all)
		}
	}
}
