package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// world is one or more quiet demo clusters and a kubeconfig that has a context
// for each: a, b, …
type world struct {
	testing.TB
	kubeconfig string
	clusters   []*fakeapi.Cluster
	hosts      []string
}

func newWorld(t testing.TB, options ...fakeapi.Options) *world {
	t.Helper()
	if len(options) == 0 {
		options = []fakeapi.Options{{}}
	}
	w := &world{TB: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	for _, o := range options {
		c := fakeapi.New(o)
		w.clusters = append(w.clusters, c)
		cfg, stop, err := fakeapi.Serve(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		w.hosts = append(w.hosts, cfg.Host)
	}
	w.write(len(w.hosts))
	return w
}

// kubeconfigOf is a kubeconfig of the one cluster at a URL.
func kubeconfigOf(t testing.TB, url string) string {
	t.Helper()
	config := api.NewConfig()
	config.Clusters["x"] = &api.Cluster{Server: url}
	config.Contexts["x"] = &api.Context{Cluster: "x"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// write makes the kubeconfig name the first n clusters.
func (w *world) write(n int) {
	w.Helper()
	config := api.NewConfig()
	for i, host := range w.hosts[:n] {
		name := string(rune('a' + i))
		config.Clusters[name] = &api.Cluster{Server: host}
		config.AuthInfos[name] = &api.AuthInfo{}
		config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	config.CurrentContext = "a"
	if err := clientcmd.WriteToFile(*config, w.kubeconfig+".new"); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(w.kubeconfig+".new", w.kubeconfig); err != nil {
		w.Fatal(err)
	}
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// create writes objects to the first cluster.
func (w *world) create(objects ...fakeapi.Object) {
	w.Helper()
	for _, o := range objects {
		if _, err := w.clusters[0].Create(o); err != nil {
			w.Fatal(err)
		}
	}
}

// update changes a pod of namespace default in the first cluster.
func (w *world) update(name string, change func(*corev1.Pod)) {
	w.Helper()
	o, err := w.clusters[0].Get(pods, "default", name)
	if err != nil {
		w.Fatal(err)
	}
	p := o.(*corev1.Pod).DeepCopy()
	change(p)
	if _, err := w.clusters[0].Update(p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.Helper()
	if err := w.clusters[0].Delete(pods, "default", name); err != nil {
		w.Fatal(err)
	}
}

// run runs a command to its end.
func (w *world) run(args ...string) (out, errs string, code int) {
	w.Helper()
	return runIn(w.Context(), w.withKubeconfig(args)...)
}

func (w *world) withKubeconfig(args []string) []string {
	if w.kubeconfig == "" || slices.Contains(args, "--server") {
		return args
	}
	return append(args, "--kubeconfig", w.kubeconfig)
}

func runIn(ctx context.Context, args ...string) (out, errs string, code int) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var o, e bytes.Buffer
	code = cli.Run(ctx, cli.IO{Out: &o, Err: &e}, args...)
	return o.String(), e.String(), code
}

// session is a command that goes on, and its output as it comes.
type session struct {
	world  *world
	stop   func() int // interrupts the command and returns its exit code
	stdout <-chan string
	stderr <-chan string
	done   chan struct{} // closed when the command has ended
}

// begin starts a command.
func (w *world) begin(args ...string) *session {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	outLines, out := lines()
	errLines, errs := lines()
	s := &session{world: w, stdout: outLines, stderr: errLines, done: make(chan struct{})}
	code := 0
	go func() {
		defer close(s.done)
		code = cli.Run(ctx, cli.IO{Out: out, Err: errs}, w.withKubeconfig(args)...)
		out.Close()
		errs.Close()
	}()
	s.stop = sync.OnceValue(func() int {
		cancel()
		<-s.done
		return code
	})
	w.Cleanup(func() { s.stop() })
	return s
}

// lines is a writer and the lines written to it. All are there once it is closed.
func lines() (<-chan string, io.WriteCloser) {
	r, w := io.Pipe()
	out, read := make(chan string, 10000), make(chan struct{})
	go func() {
		defer close(read)
		defer close(out)
		for scan := bufio.NewScanner(r); scan.Scan(); {
			out <- scan.Text()
		}
	}()
	return out, lineWriter{w, read}
}

type lineWriter struct {
	*io.PipeWriter
	read <-chan struct{} // closed when the last line is in the channel
}

// Close waits for the last line: a write returns before its lines are in the channel.
func (w lineWriter) Close() error {
	err := w.PipeWriter.Close()
	<-w.read
	return err
}

// line returns the next line of the output.
func (s *session) line() string {
	s.world.Helper()
	return s.take(s.stdout, "line of output")
}

// remark returns the next line on stderr.
func (s *session) remark() string {
	s.world.Helper()
	return s.take(s.stderr, "remark")
}

func (s *session) take(from <-chan string, what string) string {
	s.world.Helper()
	select {
	case l, ok := <-from:
		if !ok {
			s.world.Fatalf("no %s, the command has ended with %d: %s", what, s.stop(), drain(s.stderr))
		}
		return l
	case <-time.After(2 * time.Minute): // a watch whose server was away for long tries again after up to a minute
		s.world.Fatalf("no %s comes; on stderr: %s", what, drain(s.stderr))
		return ""
	}
}

// expect takes lines and compares their words, leaving out those with a * in
// their place.
func (s *session) expect(want ...string) {
	s.world.Helper()
	for _, w := range want {
		if got := s.line(); !alike(got, w) {
			s.world.Fatalf("got  %q\nwant %q", got, w)
		}
	}
}

// alike compares words; * stands for any end of a word, … for all that follow.
func alike(got, want string) bool {
	g, w := strings.Fields(got), strings.Fields(want)
	for i, word := range w {
		switch {
		case word == "…":
			return true
		case i >= len(g):
			return false
		case strings.HasSuffix(word, "*") && strings.HasPrefix(g[i], word[:len(word)-1]):
		case word != g[i]:
			return false
		}
	}
	return len(g) == len(w)
}

func drain(from <-chan string) string {
	var all []string
	for {
		select {
		case l, ok := <-from:
			if ok {
				all = append(all, l)
				continue
			}
		default:
		}
		return strings.Join(all, "\n")
	}
}

// check compares a command's whole output line by line, as expect does.
func check(t testing.TB, got string, want ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	for i, w := range want {
		if i >= len(lines) || !alike(lines[i], w) {
			t.Fatalf("line %d is not %q in\n%s", i+1, w, got)
		}
	}
	if len(lines) > len(want) && !(got == "" && len(want) == 0) {
		t.Fatalf("more than %d lines:\n%s", len(want), got)
	}
}

func contains(t testing.TB, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}

func numbered(prefix string, n int) string { return fmt.Sprintf("%s-%04d", prefix, n) }
