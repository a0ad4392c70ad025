package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// rig is a server of a mirror of an in-memory cluster.
type rig struct {
	testing.TB
	cluster *fakeapi.Cluster
	config  *rest.Config
	mirror  *mirror.Mirror
	url     string
	client  *http.Client
	log     *logbook.Book
	stop    func() error // ends the server, as the end of the test does
}

type options struct {
	cluster fakeapi.Options
	fault   fakeapi.Injector // before anything is mirrored
	mirror  mirror.Options
	server  server.Options
}

func start(tb testing.TB, o options) *rig {
	tb.Helper()
	c := fakeapi.New(o.cluster)
	if o.fault != nil {
		c.Inject(o.fault)
	}
	config, stop := fakeapi.InProcess(c)
	tb.Cleanup(stop)
	return serve(tb, c, config, o)
}

func serve(tb testing.TB, c *fakeapi.Cluster, config *rest.Config, o options) *rig {
	tb.Helper()
	r := &rig{TB: tb, cluster: c, config: config, log: &logbook.Book{}}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.mirror.Logger, o.server.Logger = logger, logger
	m, err := mirror.New(o.mirror)
	r.must(err)
	r.mirror = m
	tb.Cleanup(func() { r.must(m.Close(context.Background())) })
	r.must(m.Set(tb.Context(), map[string]*rest.Config{"test": config}))
	s, err := server.New(m, o.server)
	r.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	transport := &http.Transport{}
	r.client = &http.Client{Transport: transport}
	r.stop = sync.OnceValue(func() error {
		cancel()
		defer transport.CloseIdleConnections()
		return <-done
	})
	tb.Cleanup(func() { r.must(r.stop()) })
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// set sets the value of a config map, and creates it if needed.
func (r *rig) set(namespace, name, value string, labels ...string) string {
	r.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"v": value}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		cm.Labels = map[string]string{k: v}
	}
	out, err := r.cluster.Put(cm)
	r.must(err)
	return out.GetResourceVersion()
}

// answer is a response of the server.
type answer struct {
	code   int
	header http.Header
	body   []byte

	Data            json.RawMessage
	ResourceVersion string
	Continue        string
	Remaining       *int64
	Error, Reason   string
	Exists          []string
	Progress        *struct {
		Phase              string
		Received, Expected int64
	}
}

// get sends a GET; header has pairs of names and values.
func (r *rig) get(path string, header ...string) answer {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.url+path, nil)
	r.must(err)
	for pair := range slices.Chunk(header, 2) {
		if req.Header.Set(pair[0], pair[1]); pair[0] == "Host" {
			req.Host = pair[1]
		}
	}
	return r.do(req)
}

func (r *rig) do(req *http.Request) answer {
	r.Helper()
	resp, err := r.client.Do(req)
	r.must(err)
	defer resp.Body.Close()
	a := answer{code: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(resp.Body)
	r.must(err)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && req.Method != http.MethodHead && resp.Header.Get("Content-Encoding") == "" {
		if err := json.Unmarshal(a.body, &a); err != nil {
			r.Fatalf("%s: not JSON: %v: %.200s", req.URL, err, a.body)
		}
	}
	return a
}

// names returns namespace/name of the objects in a response.
func (a answer) names() []string {
	var objects []meta
	if json.Unmarshal(a.Data, &objects) != nil {
		var one meta
		if json.Unmarshal(a.Data, &one) != nil {
			return nil
		}
		objects = append(objects, one)
	}
	out := []string{}
	for _, o := range objects {
		out = append(out, o.String())
	}
	return out
}

type meta struct {
	Kind, APIVersion string
	Metadata         struct{ Namespace, Name, ResourceVersion string }
}

func (m meta) String() string {
	return strings.TrimPrefix(m.Metadata.Namespace+"/"+m.Metadata.Name, "/")
}

func same(tb testing.TB, what string, got, want []string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// eventually waits for a condition that has no notification.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("it did not come to be that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// eventSource reads a stream as a browser's EventSource does.
type eventSource struct {
	*rig
	url    string
	token  string
	lastID string
	retry  string
	body   io.ReadCloser
	lines  *bufio.Reader
	cancel context.CancelFunc
}

// message is what an EventSource dispatches.
type message struct {
	event, data string

	Type            string
	Object          *meta
	ResourceVersion string
}

func (m message) String() string {
	if m.Object == nil {
		return m.event + m.Type
	}
	return fmt.Sprintf("%s %s@%s", m.Type, m.Object, m.Object.Metadata.ResourceVersion)
}

func (r *rig) eventSource(path string) *eventSource {
	es := &eventSource{rig: r, url: r.url + path}
	r.Cleanup(es.close)
	es.connect()
	return es
}

func (es *eventSource) connect() {
	es.Helper()
	es.close()
	ctx, cancel := context.WithCancel(context.Background())
	es.cancel = cancel
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, es.url, nil)
	es.must(err)
	req.Header.Set("Accept", "text/event-stream")
	if es.token != "" {
		req.Header.Set("Authorization", "Bearer "+es.token)
	}
	if es.lastID != "" {
		req.Header.Set("Last-Event-ID", es.lastID)
	}
	resp, err := es.client.Do(req)
	es.must(err)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		es.Fatalf("watch: %s: %s", resp.Status, body)
	}
	es.body, es.lines = resp.Body, bufio.NewReader(resp.Body)
}

func (es *eventSource) close() {
	if es.cancel != nil {
		es.cancel()
		es.body.Close()
	}
}

// next reads the stream up to a message, as the HTML standard says, or returns io.EOF
// or a similar error at its end. It fails after a minute without a message.
func (es *eventSource) next() (message, error) {
	defer time.AfterFunc(time.Minute, es.cancel).Stop()
	var m message
	id, data := es.lastID, []string{}
	for {
		line, err := es.lines.ReadString('\n')
		if err != nil {
			return message{}, err // what has not been dispatched is dropped
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			es.lastID = id
			if len(data) == 0 {
				m = message{}
				continue
			}
			m.data = strings.Join(data, "\n")
			if m.event == "" {
				es.must(json.Unmarshal([]byte(m.data), &m))
			}
			return m, nil
		case field == "":
		case field == "id":
			id = value
		case field == "data":
			data = append(data, value)
		case field == "event":
			m.event = value
		case field == "retry":
			es.retry = value
		default:
			es.Fatalf("a field that means nothing: %q", line)
		}
	}
}

func (es *eventSource) expect(want ...string) {
	es.Helper()
	for _, want := range want {
		m, err := es.next()
		es.must(err)
		if m.String() != want {
			es.Fatalf("got %q, want %q", m, want)
		}
	}
}
