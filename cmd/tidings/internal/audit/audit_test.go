package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/audit"
	"github.com/tidings-io/tidings/internal/logbook"
)

func TestMain(m *testing.M) {
	// The rotation of a file keeps a goroutine for good.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// disk is a file that can be slow or fail.
type disk struct {
	mu      sync.Mutex
	content bytes.Buffer
	err     error         // of each write
	room    int           // how much of a write that fails is written
	stuck   chan struct{} // if not nil, a write waits until it closes
	delay   time.Duration // of each write
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	stuck := d.stuck
	d.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	time.Sleep(d.delay)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		n := min(d.room, len(p))
		d.room -= n
		d.content.Write(p[:n])
		return n, d.err
	}
	return d.content.Write(p)
}

func (d *disk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// events returns the events in what was written, and the number of lines that are none.
func events(t *testing.T, content []byte) (out []auditv1.Event, torn int) {
	t.Helper()
	for line := range strings.Lines(string(content)) {
		var e auditv1.Event
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &e) != nil {
			torn++
			continue
		}
		out = append(out, e)
	}
	return out, torn
}

func event(uri string) *auditv1.Event {
	e := audit.NewEvent(time.Now())
	e.Stage, e.RequestURI = auditv1.StageResponseComplete, uri
	return e
}

func stop(t *testing.T, l *audit.Log) {
	t.Helper()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEventsAreWrittenInOrder(t *testing.T) {
	var d disk
	l := audit.New(&d, audit.Options{})
	const n = 2000 // more than are written at a time
	for i := range n {
		l.Write(event(fmt.Sprint("/", i)))
	}
	stop(t, l)
	l.Write(event("/late"))
	got, torn := events(t, d.content.Bytes())
	if len(got) != n || torn > 0 {
		t.Fatalf("%d events, and %d lines that are none", len(got), torn)
	}
	for i, e := range got {
		if e.RequestURI != fmt.Sprint("/", i) || e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" || e.Level != auditv1.LevelMetadata || len(e.AuditID) != 36 {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	if s := l.Status(); s.Written != n || s.Dropped != 1 || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
}

// A disk that does not answer keeps nobody waiting for long, and memory is bounded.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := disk{stuck: make(chan struct{})}, logbook.Book{}
		l := audit.New(&d, audit.Options{QueueBytes: 10_000, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l.Write(event("/first"))
		synctest.Wait() // it is being written
		begun := time.Now()
		for range 1000 {
			l.Write(event("/more"))
		}
		if waited := time.Since(begun); waited != time.Second {
			t.Errorf("all together have waited for %s", waited)
		}
		s := l.Status()
		if s.Dropped == 0 || s.Queued == 0 || s.Queued > 10_000 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(log.String(), "events are missing in the audit log"); n != 1 {
			t.Errorf("it is said %d times: %s", n, log.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed while the disk does not answer: %v", err)
		}
		close(d.stuck)
		stop(t, l)
		got, torn := events(t, d.content.Bytes())
		if s = l.Status(); torn != 0 || uint64(len(got)) != s.Written || s.Written+s.Dropped != 1001 {
			t.Errorf("%d events, %d lines that are none: %+v", len(got), torn, s)
		}
	})
}

// A flood that the disk can follow loses nothing: it waits. Strangers do not wait.
func TestFloodWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disk{delay: 100 * time.Millisecond}
		l := audit.New(&d, audit.Options{QueueBytes: 10_000, Logger: slog.New(slog.DiscardHandler)})
		var group sync.WaitGroup
		const callers, each = 20, 50
		for range callers {
			group.Go(func() {
				for range each {
					l.Write(event("/flood"))
				}
			})
		}
		group.Wait()
		begun := time.Now()
		for range 50 {
			l.WriteStranger(event("/strange"))
		}
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("strangers have waited for %s", waited)
		}
		stop(t, l)
		got, _ := events(t, d.content.Bytes())
		flood := 0
		for _, e := range got {
			if e.RequestURI == "/flood" {
				flood++
			}
		}
		if flood != callers*each {
			t.Errorf("%d events of %d: %+v", flood, callers*each, l.Status())
		}
	})
}

// What a full disk has cut off spoils no later event.
func TestFailingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d disk
		var log logbook.Book
		l := audit.New(&d, audit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		write := func(uri string) {
			l.Write(event(uri))
			synctest.Wait()
		}
		write("/before")
		d.set(func() { d.err, d.room = errors.New("no space left on device"), 100 })
		for range 3 {
			write("/lost")
		}
		if s := l.Status(); s.Err == nil || s.Failed != 3 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(log.String(), `err="no space left on device"`); n != 1 {
			t.Errorf("it is said %d times: %s", n, log.String())
		}
		for _, line := range []string{"tidings_audit_failing 1\n", "tidings_audit_lost_total{because=\"queue\"} 0\n", "tidings_audit_lost_total{because=\"write\"} 3\n"} {
			if got := scrape(t, l); !strings.Contains(got, line) {
				t.Errorf("%s lacks %s", got, line)
			}
		}
		d.set(func() { d.err = nil })
		write("/after")
		write("/later")
		stop(t, l)
		got, torn := events(t, d.content.Bytes())
		if len(got) != 3 || torn != 1 || got[0].RequestURI != "/before" || got[1].RequestURI != "/after" || got[2].RequestURI != "/later" {
			t.Errorf("%d lines are none, and %+v", torn, got)
		}
		if !strings.Contains(log.String(), "can be written again") || l.Status().Err != nil {
			t.Errorf("%+v: %s", l.Status(), log.String())
		}
	})
}

func TestMetricsAreWellNamed(t *testing.T) {
	l := audit.New(io.Discard, audit.Options{})
	defer stop(t, l)
	if problems, err := promlint.New(strings.NewReader(scrape(t, l))).Lint(); err != nil || len(problems) > 0 {
		t.Error(err, problems)
	}
}

// scrape returns the metrics of a log.
func scrape(t *testing.T, l *audit.Log) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(l); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// A flood of strangers is counted by address.
func TestStrangersAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d disk
		l := audit.New(&d, audit.Options{FoldInterval: 10 * time.Second})
		stranger := func(address string) {
			e := event("/secrets")
			e.SourceIPs, e.ResponseStatus, e.StageTimestamp = []string{address}, &metav1.Status{Code: 401}, metav1.NowMicro()
			l.WriteStranger(e)
		}
		const flood = 5000
		for range flood {
			stranger("192.0.2.1")
		}
		for range 7 {
			stranger("192.0.2.2")
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		for i := range flood { // each from an address of its own
			stranger(fmt.Sprintf("2001:db8::%x", i))
		}
		stop(t, l)
		got, torn := events(t, d.content.Bytes())
		if torn > 0 || len(got) > 2000 {
			t.Fatalf("%d events, %d lines that are none", len(got), torn)
		}
		byAddress, total := map[string]int{}, 0
		for _, e := range got {
			n := 1
			if text := e.Annotations[audit.AnnotationRequests]; text != "" {
				if _, err := fmt.Sscan(text, &n); err != nil {
					t.Fatal(err)
				}
				if e.ResponseStatus.Code != 401 || e.RequestReceivedTimestamp.IsZero() || e.StageTimestamp.IsZero() {
					t.Errorf("%+v", e)
				}
			}
			total += n
			for _, address := range e.SourceIPs {
				byAddress[address] += n
			}
		}
		if total != 2*flood+7 || byAddress["192.0.2.1"] != flood || byAddress["192.0.2.2"] != 7 {
			t.Errorf("%d in all, %d and %d", total, byAddress["192.0.2.1"], byAddress["192.0.2.2"])
		}
		if s := l.Status(); s.Folded == 0 || s.Dropped > 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFilesAreRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "audit.log")
	f, err := audit.OpenFile(path, audit.Rotation{MaxSize: 1, MaxBackups: 2})
	if err != nil {
		t.Fatal(err)
	}
	l := audit.New(f, audit.Options{QueueBytes: 64 << 20})
	const n = 9000 // some 3 MB
	for i := range n {
		l.Write(event(fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 100))))
	}
	stop(t, l)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if s := l.Status(); s.Written != n {
		t.Errorf("%+v", s)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "audit*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil && errors.Is(err, os.ErrNotExist) {
			continue // of too many
		}
		info, statErr := os.Stat(file)
		if err != nil || statErr != nil {
			t.Fatal(err, statErr)
		}
		if _, torn := events(t, content); torn > 0 || len(content) > 1<<20 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, %d lines that are no events, %s", file, len(content), torn, info.Mode())
		}
	}
}

func TestFilesThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{dir: "not a regular file", "/dev/null": "use - for standard output", filepath.Join(file, "below"): "not a directory"} {
		if _, err := audit.OpenFile(path, audit.Rotation{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Whatever a client sends is one line of plain ASCII, from which it can be read.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"", "curl/8", "a\nb\r\n{\"kind\":\"Event\"}", "\x1b[2J\u009b31m\u2028\u202e\x7f", "\xff\xfe", "𝒳&<>\"\\\\u000a"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, agent, name string) {
		var d disk
		l := audit.New(&d, audit.Options{})
		e := event("/")
		e.UserAgent, e.ObjectRef = audit.Bounded(agent, 50), &auditv1.ObjectReference{Name: name}
		e.Annotations = map[string]string{"reason": name}
		l.Write(e)
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		content := d.content.Bytes()
		for i, b := range content {
			if (b < ' ' || b > '~') && i != len(content)-1 {
				t.Fatalf("%q is in %q", b, content)
			}
		}
		got, torn := events(t, content)
		if torn > 0 || len(got) != 1 {
			t.Fatalf("%q", content)
		}
		if valid := strings.ToValidUTF8(name, "\uFFFD"); !strings.Contains(valid, "\uFFFD") && (got[0].ObjectRef.Name != name || got[0].Annotations["reason"] != name) {
			t.Errorf("%q is read as %q", name, got[0].ObjectRef.Name)
		}
		if len(e.UserAgent) > 50+len("...TRUNCATED") {
			t.Errorf("%q", e.UserAgent)
		}
	})
}
