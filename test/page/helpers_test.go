package page_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// browser is the Chromium of all tests. Each test has a profile of its own.
var browser context.Context

func TestMain(m *testing.M) {
	at, err := findChromium()
	if err != nil {
		fmt.Println("the tests of the page are left out:", err)
		if os.Getenv("CI") != "" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	flags := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(at))
	if os.Geteuid() == 0 {
		flags = append(flags, chromedp.NoSandbox) // the sandbox does not start as root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), flags...)
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		fmt.Println("cannot start", at+":", err)
		os.Exit(1)
	}
	code := m.Run()
	end()
	stop()
	os.Exit(code)
}

func findChromium() (string, error) {
	if at := os.Getenv("CHROMIUM"); at != "" {
		return at, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if at, err := exec.LookPath(name); err == nil {
			return at, nil
		}
	}
	return "", errors.New("there is no Chromium: install it, on Debian with apt-get install chromium, or name it in CHROMIUM")
}

// served is a mirror of one cluster with a server, which can be stopped and started again
// at the same address.
type served struct {
	testing.TB
	mirror  *mirror.Mirror
	options server.Options
	address string
	stop    func()
}

func serve(tb testing.TB, config *rest.Config, options server.Options) *served {
	tb.Helper()
	return serveAll(tb, map[string]*rest.Config{"demo": config}, options)
}

// serveAll serves several clusters.
func serveAll(tb testing.TB, configs map[string]*rest.Config, options server.Options) *served {
	tb.Helper()
	s := &served{TB: tb, options: options, address: "127.0.0.1:0"}
	s.options.Logger = slog.New(slog.DiscardHandler)
	s.options.Version = "v0.0.0"
	var err error
	mirrored := mirror.Options{Logger: s.options.Logger, Resources: []string{mirror.Everything, "secrets"}}
	if kept := options.Reads.History; kept != nil {
		mirrored.Journal = kept
	}
	if s.mirror, err = mirror.New(mirrored); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.mirror.Close(context.Background()) })
	if err := s.mirror.Set(tb.Context(), configs); err != nil {
		tb.Fatal(err)
	}
	s.start()
	tb.Cleanup(func() { s.stop() })
	return s
}

func (s *served) start() {
	s.Helper()
	one, err := server.New(s.mirror, s.options)
	if err != nil {
		s.Fatal(err)
	}
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	s.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- one.Serve(ctx, l) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
}

// startDemo serves the demo, as `tidings serve --demo` does.
func startDemo(tb testing.TB, w demo.Workload) (*served, *demo.Cluster) {
	tb.Helper()
	config, c := runDemo(tb, w, fakeapi.Options{})
	return serve(tb, config, withHistory(tb)), c
}

// runDemo starts the cluster of the demo.
func runDemo(tb testing.TB, w demo.Workload, o fakeapi.Options) (*rest.Config, *demo.Cluster) {
	tb.Helper()
	c := demo.New(w, o)
	config, stop := fakeapi.InProcess(c.Cluster)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
		stop()
	})
	return config, c
}

// withHistory makes a server keep a history in memory.
func withHistory(tb testing.TB) server.Options {
	tb.Helper()
	store, err := history.Open("history", history.Options{InMemory: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	thin := map[string]time.Duration{"events": time.Microsecond} // as serve does, but so that no test waits for it
	if err := store.SetThinned(thin); err != nil {
		tb.Fatal(err)
	}
	return server.Options{Reads: read.Options{History: history.NewRecording(store, history.RecordingOptions{Thin: thin})}}
}

// startEmpty serves a cluster without pods.
func startEmpty(tb testing.TB) (*served, *fakeapi.Cluster) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	tb.Cleanup(stop)
	return serve(tb, config, server.Options{}), c
}

// putPod puts a pod of a status into a cluster.
func putPod(tb testing.TB, c *fakeapi.Cluster, namespace, name string, phase corev1.PodPhase, change ...func(*corev1.Pod)) {
	tb.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
		Status:     corev1.PodStatus{Phase: phase},
	}
	for _, f := range change {
		f(pod)
	}
	if _, err := c.Put(pod); err != nil {
		tb.Fatal(err)
	}
}

// tab is a tab of the browser with the page.
type tab struct {
	testing.TB
	ctx    context.Context
	served *served

	mu         sync.Mutex
	complaints []string
	expected   []string // parts of complaints that belong to the test
}

// visit opens the page in a new profile. The browser may complain of what is expected, from the first request on.
func visit(tb testing.TB, s *served, fragment string, expected ...string) *tab {
	tb.Helper()
	t := &tab{TB: tb, served: s, expected: expected}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			t.complain(e.Entry.Text + " " + e.Entry.URL)
		case *runtime.EventExceptionThrown:
			t.complain(fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception))
		case *runtime.EventConsoleAPICalled:
			for _, arg := range e.Args {
				t.complain("console: " + string(arg.Value))
			}
		}
	}))
	if err := chromedp.Do(ctx); err != nil { // the tab ends with the context of its first action
		tb.Fatal(err)
	}
	limited, stop := context.WithTimeout(ctx, 5*time.Minute) // for a whole test; each await has less
	t.ctx = limited
	tb.Cleanup(func() {
		stop()
		cancel()
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, c := range t.complaints {
			tb.Errorf("the browser complains: %s", c)
		}
	})
	t.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate("http://"+s.address+"/"+fragment))
	return t
}

// away are complaints of a browser whose server ends, whatever it was about to ask.
var away = []string{"503", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING"}

func (t *tab) complain(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, part := range t.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	t.complaints = append(t.complaints, text)
}

func (t *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(t.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// press presses keys, one after another. A longer text is typed, as fast as it can be.
func (t *tab) press(keys ...string) {
	t.Helper()
	for _, keys := range keys {
		if strings.ContainsAny(keys, enter+escape+kb.Tab) {
			t.do(chromedp.KeyEvent(keys))
			continue
		}
		for _, key := range keys {
			// As a keyboard does: what the page prevents is not typed.
			for _, event := range []input.DispatchKeyEventParams{{Type: input.DispatchKeyEventTypeKeyDown, Key: string(key), Text: string(key)}, {Type: input.DispatchKeyEventTypeKeyUp, Key: string(key)}} {
				t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
					_, err := cdp.Call(ctx, target, input.DispatchKeyEvent, event)
					return err
				}))
			}
		}
	}
}

// await waits until an expression of JavaScript is true. One that fails, as there is no such element, is not true yet:
// if it failed in the page, the poll would never end, and the browser would complain.
func (t *tab) await(what, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Second)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void]("(() => { try { return Boolean("+expression+"); } catch { return false; } })()", chromedp.WithPollingTimeout(0), chromedp.WithPollingInterval(20*time.Millisecond)))
		if err == nil {
			return
		}
		if ctx.Err() != nil { // else the page was loaded anew
			t.Fatalf("it did not come to be that %s: %v\n%s", what, err, evaluate[string](t, "location.href + '\\n' + document.body.innerText.slice(0, 2000)"))
		}
	}
}

// awaitText waits until a part of the page has a text.
func (t *tab) awaitText(selector, text string) {
	t.Helper()
	t.await(fmt.Sprintf("%s says %q", selector, text), fmt.Sprintf("document.querySelector(%q)?.innerText.replace(/\\s+/g, ' ').includes(%q)", selector, text))
}

// evaluate returns the value of an expression of JavaScript.
func evaluate[T any](t *tab, expression string) T {
	t.Helper()
	value, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// column returns the shown texts of a column, in order.
func (t *tab) column(name string) []string {
	t.Helper()
	return evaluate[[]string](t, fmt.Sprintf(`(() => {
		const at = [...document.querySelectorAll("th")].findIndex((th) => th.innerText.trim().startsWith(%q));
		return [...document.querySelectorAll("tbody tr:not(.space)")].map((tr) => tr.cells[at].innerText);
	})()`, name))
}

var keyLeft, keyRight = chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowRight)

const (
	enter  = kb.Enter
	escape = kb.Escape
)
