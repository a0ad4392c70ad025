package faultproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a cluster, what stands in front of it, and a client behind all that.
type rig struct {
	*testing.T
	ctx    context.Context
	proxy  *faultproxy.Proxy
	wire   *faultproxy.TCP
	config *rest.Config
	direct kubernetes.Interface
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	config, stop, err := fakeapi.Serve(r.ctx, fakeapi.New(fakeapi.Options{}))
	r.must(err)
	t.Cleanup(stop)
	r.proxy, err = faultproxy.New(config)
	r.must(err)
	t.Cleanup(func() { _ = r.proxy.Close() })
	r.wire, err = faultproxy.NewTCP(r.proxy.Addr())
	r.must(err)
	t.Cleanup(func() { _ = r.wire.Close() })
	r.config = r.wire.Config(r.proxy.Config(config))
	r.direct = kubernetes.NewForConfigOrDie(config)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// http returns a client with connections of its own.
func (r *rig) http() *http.Client {
	authority, err := rest.TLSConfigFor(r.config)
	r.must(err)
	transport := &http.Transport{TLSClientConfig: authority, ForceAttemptHTTP2: true}
	r.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (r *rig) client(contentType string) *kubernetes.Clientset {
	config := rest.CopyConfig(r.config)
	config.ContentType = contentType
	set, err := kubernetes.NewForConfigAndClient(config, r.http())
	r.must(err)
	return set
}

func (r *rig) create(names ...string) {
	r.Helper()
	for _, name := range names {
		_, err := r.direct.CoreV1().ConfigMaps("default").Create(r.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": strings.Repeat("x", 1000)},
		}, metav1.CreateOptions{})
		r.must(err)
	}
}

var formats = map[string]string{"json": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"}

// events watches from the beginning until the stream ends and tells what came.
func (r *rig) events(client kubernetes.Interface, options metav1.ListOptions) (told []string) {
	r.Helper()
	w, err := client.CoreV1().ConfigMaps("default").Watch(r.ctx, options)
	if err != nil {
		return []string{err.Error()}
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch o := e.Object.(type) {
		case *corev1.ConfigMap:
			told = append(told, fmt.Sprintf("%s %s%s", e.Type, o.Name, o.Annotations[metav1.InitialEventsAnnotationKey]))
		case *metav1.Status:
			told = append(told, fmt.Sprintf("%s %s", e.Type, o.Reason))
		}
	}
	return told
}

func TestFramesOfWatches(t *testing.T) {
	initial := metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true, TimeoutSeconds: new(int64(1)),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	for format, contentType := range formats {
		t.Run(format, func(t *testing.T) {
			for _, c := range []struct {
				name   string
				action faultproxy.Action
				want   string
			}{
				{"pass", faultproxy.Pass, "[ADDED a ADDED b BOOKMARK true BOOKMARK ]"},
				{"cut", faultproxy.CutFrame(1), "[ADDED a]"},
				{"truncated", faultproxy.TruncateFrame(1), "[ADDED a]"},
				{"ended", faultproxy.EndAfter(2), "[ADDED a ADDED b]"},
				{"expired", faultproxy.ErrorEvent(1, apierrors.NewResourceExpired("too old")), "[ADDED a ERROR Expired]"},
				{"no bookmark", faultproxy.DropBookmarks(true), "[ADDED a ADDED b]"},
				{"twice", faultproxy.Twice(), "[ADDED a ADDED a ADDED b ADDED b BOOKMARK true BOOKMARK true BOOKMARK  BOOKMARK ]"},
				{"another bookmark", faultproxy.BookmarkAfter(0, "99"), "[ADDED a BOOKMARK  ADDED b BOOKMARK true BOOKMARK ]"},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					r.create("a", "b")
					client := r.client(contentType)
					rule := &faultproxy.Rule{Verb: faultproxy.WatchList, Resource: "configmaps", Times: 1, Action: c.action}
					defer r.proxy.Add(rule)()
					told := fmt.Sprint(r.events(client, initial))
					// client-go reports some broken streams as an error event of its own.
					if told = strings.ReplaceAll(told, " ERROR InternalError", ""); told != c.want {
						t.Errorf("told %s, not %s", told, c.want)
					}
					if rule.Hits() != 1 || rule.Seen() != 1 {
						t.Errorf("hit %d of %d", rule.Hits(), rule.Seen())
					}
				})
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	r := newRig(t)
	r.create("a", "b", "c")
	for _, c := range []struct {
		name   string
		action faultproxy.Action
		want   string
	}{
		{"pass", faultproxy.Pass, "3 <nil>"},
		{"broken", faultproxy.Break(), "EOF|stream error"},
		{"cut", faultproxy.Cut(100), "unexpected EOF|stream error"},
		{"truncated", faultproxy.Truncate(100), "unexpected end of JSON|unexpected EOF|decode"},
		{"gzip", faultproxy.CorruptGzip(), "gzip|flate|invalid"},
		{"403", faultproxy.Status(apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no"))), "forbidden"},
		{"html", faultproxy.Answer(200, "text/html", "<html>welcome</html>"), "html|json|decode|serializer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := r.client(formats["json"])
			defer r.proxy.Add(&faultproxy.Rule{Verb: "list", Resource: "configmaps", Action: c.action})()
			ctx, cancel := context.WithTimeout(r.ctx, 3*time.Second)
			defer cancel()
			list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			got := fmt.Sprint(len(list.Items), " ", err)
			for want := range strings.SplitSeq(c.want, "|") {
				if strings.Contains(got, want) {
					return
				}
			}
			t.Errorf("got %s", got)
		})
	}
}

// TestAdvice looks at what client-go would hide by heeding it.
func TestAdvice(t *testing.T) {
	r := newRig(t)
	for name, action := range map[string]faultproxy.Action{
		"status": faultproxy.Status(apierrors.NewTooManyRequests("slow down", 7)),
		"header": faultproxy.RetryAfter(http.StatusTooManyRequests, "7"),
	} {
		t.Run(name, func(t *testing.T) {
			defer r.proxy.Add(&faultproxy.Rule{Action: action})()
			resp, err := r.http().Get(r.config.Host + "/api/v1/pods")
			r.must(err)
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "7" {
				t.Errorf("%s, to come back after %q", resp.Status, resp.Header.Get("Retry-After"))
			}
		})
	}
}

// ask asks for the version of the API server over a connection of its own.
func (r *rig) ask(patience time.Duration) error {
	client := r.http()
	defer client.CloseIdleConnections()
	return ask(r.ctx, client, r.config.Host, patience)
}

func ask(ctx context.Context, client *http.Client, host string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/version", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestConnections(t *testing.T) {
	const long, short = 20 * time.Second, 300 * time.Millisecond
	r := newRig(t)
	r.must(r.ask(long))

	r.wire.Refuse()
	if err := r.ask(long); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	r.must(r.wire.Heal())
	r.must(r.ask(long))

	r.must(r.wire.Stall())
	if err := r.ask(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stalled: %v", err)
	}
	r.must(r.wire.Heal())
	r.must(r.ask(long))

	r.must(r.wire.ResetNew())
	if err := r.ask(long); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reset as soon as asked: %v", err)
	}
	r.must(r.wire.Heal())

	// One that is open is dead, a new one is not.
	client := r.http()
	r.must(ask(r.ctx, client, r.config.Host, long))
	r.must(r.wire.HalfOpen())
	if err := ask(r.ctx, client, r.config.Host, short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("half open: %v", err)
	}
	r.must(r.ask(long))
	r.must(r.wire.Heal())

	for r.proxy.Open(nil) > 0 && r.ctx.Err() == nil { // the request that nobody waits for any more
		time.Sleep(time.Millisecond)
	}
	client = r.http()
	remove := r.proxy.Add(&faultproxy.Rule{Action: faultproxy.Hang()})
	asked := make(chan error)
	go func() { asked <- ask(r.ctx, client, r.config.Host, long) }()
	for r.proxy.Open(nil) == 0 {
		time.Sleep(time.Millisecond)
	}
	r.wire.Reset()
	if err := <-asked; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
	remove()
	r.must(r.ask(long))
}

func TestCutOpen(t *testing.T) {
	r := newRig(t)
	r.create("a")
	client := r.client(formats["json"])
	w, err := client.CoreV1().ConfigMaps("default").Watch(r.ctx, metav1.ListOptions{ResourceVersion: "0"})
	r.must(err)
	defer w.Stop()
	<-w.ResultChan()
	watches := func(req faultproxy.Request) bool { return req.Verb == "watch" }
	if n := r.proxy.CutOpen(watches); n != 1 {
		t.Errorf("%d requests cut", n)
	}
	for range w.ResultChan() {
	}
	if n := r.proxy.Requests(watches); n != 1 {
		t.Errorf("%d watches counted", n)
	}
}
