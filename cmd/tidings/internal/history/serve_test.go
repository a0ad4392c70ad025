package history_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// served is a server with a history on a disk of the test's.
type served struct {
	*testing.T
	cluster *fakeapi.Cluster
	config  *rest.Config
	disk    vfs.FS

	handler http.Handler
	stop    func()
}

// servers runs a test in which servers of a cluster are started on a disk.
func servers(t *testing.T, disk vfs.FS, test func(*served)) {
	synctest.Test(t, func(t *testing.T) {
		s := &served{T: t, disk: disk, cluster: fakeapi.New(fakeapi.Options{})}
		var stop func()
		s.config, stop = fakeapi.InProcess(s.cluster)
		defer stop()
		defer func() { s.stop() }()
		test(s)
	})
}

func (s *served) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// start starts a server.
func (s *served) start() {
	s.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store, err := history.Open("history", history.Options{Logger: quiet}.On(s.disk))
	s.must(err)
	recording := history.NewRecording(store, history.RecordingOptions{})
	m, err := mirror.New(mirror.Options{Resources: []string{"configmaps", "pods"}, Logger: quiet, Backlog: 100, Journal: recording})
	s.must(err)
	s.must(m.Set(s.Context(), map[string]*rest.Config{"test": s.config}))
	srv, err := server.New(m, server.Options{Reads: read.Options{History: recording}, Logger: quiet})
	s.must(err)
	s.handler = srv.Handler()
	s.stop = sync.OnceFunc(func() {
		s.Helper()
		srv.Close()
		s.must(m.Close(context.Background()))
		s.must(store.Close())
	})
	time.Sleep(time.Second) // of the bubble
	synctest.Wait()
}

// get asks the server.
func (s *served) get(path string, into any) (code int, body string) {
	s.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusOK {
			s.Fatalf("%s: %d %v %.500s", path, w.Code, err, w.Body)
		}
	}
	return w.Code, w.Body.String()
}

// put writes a config map, with a value.
func (s *served) put(name, value string) {
	s.Helper()
	_, err := s.cluster.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}})
	s.must(err)
}

type values []corev1.ConfigMap

func (v values) all() map[string]string {
	out := map[string]string{}
	for _, o := range v {
		out[o.Name] = o.Data["v"]
	}
	return out
}

// recorded compares the newest state of the history with that of the mirror.
func (s *served) recorded() {
	s.Helper()
	var now, past struct{ Data values }
	s.get("/configmaps", &now)
	s.get("/configmaps?at=-0s", &past)
	if !maps.Equal(now.Data.all(), past.Data.all()) {
		s.Errorf("the history ends with %.1000v, and the mirror has %.1000v", past.Data.all(), now.Data.all())
	}
}

// A server whose disk is full serves on and says so. When there is room, its history goes
// on, with a gap.
func TestServerWithAFullDisk(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	servers(t, disk, func(s *served) {
		for i := range 10 {
			s.put(strconv.Itoa(i), "before")
		}
		s.start()
		s.recorded()
		says := func(metric, status string) {
			s.Helper()
			if _, body := s.get("/metrics", nil); !strings.Contains(body, `tidings_history_failing{cluster="test",group="",resource="configmaps"} `+metric+"\n") {
				s.Errorf("the metric is not %s", metric)
			}
			if _, body := s.get("/readyz?verbose", nil); !strings.Contains(body, status) || !strings.Contains(body, "readyz check passed") {
				s.Errorf("no %q in %s", status, body)
			}
		}
		says("0", "[+]history ok\n")

		full := time.Now()
		disk.full.Store(true)
		time.Sleep(2 * time.Second)
		for i := range 3000 {
			s.put(strconv.Itoa(i%10), strconv.Itoa(i))
		}
		time.Sleep(10 * time.Second)
		says("1", "[+]history ok: it cannot be written: write the history of configmaps of cluster test: the disk of history has 0 MiB left")
		var now struct{ Data values }
		if s.get("/configmaps", &now); now.Data.all()["9"] != "2999" {
			s.Errorf("the mirror does not go on: %v", now.Data.all())
		}

		ended := time.Now()
		disk.full.Store(false)
		time.Sleep(time.Minute)
		says("0", "[+]history ok\n")
		s.recorded()
		s.put("after", "1")
		time.Sleep(time.Second)
		s.recorded()
		var changes struct {
			Data []struct {
				Object corev1.ConfigMap
				Type   string
				Relist bool
			}
			Gaps []history.Gap
		}
		s.get("/configmaps?changes=true&objects=true", &changes)
		missed := func(g history.Gap, from time.Time) bool {
			return !g.Late && !g.From.Before(from) && g.From.Before(from.Add(10*time.Second)) && !g.To.Before(ended) && g.To.Before(ended.Add(time.Minute))
		}
		if g := changes.Gaps; len(g) != 2 || !missed(g[0], full) || g[0].Reason != "the history could not be written" || !missed(g[1], ended) || !strings.Contains(g[1].Reason, "faster than they could be written") {
			s.Errorf("the gaps are %+v; the disk was full from %v to %v", g, full, ended)
		}
		var at struct{ Moment struct{ Gap *history.Gap } }
		if s.get("/configmaps?limit=1&at="+url.QueryEscape(ended.Format(time.RFC3339Nano)), &at); at.Moment.Gap == nil || at.Moment.Gap.Reason != changes.Gaps[0].Reason {
			s.Errorf("a moment while the disk was full is in the gap %+v", at.Moment.Gap)
		}
		if last := changes.Data[len(changes.Data)-1]; last.Object.Name != "after" || last.Type != "ADDED" || last.Relist {
			s.Errorf("the last change is %+v", last)
		}
		s.stop()
		disk.full.Store(true)
		s.start() // on a full disk
		s.put("after", "2")
		time.Sleep(5 * time.Second)
		disk.full.Store(false)
		time.Sleep(time.Minute)
		s.recorded()
		s.get("/configmaps?changes=true", &changes)
		if !slices.ContainsFunc(changes.Gaps, func(g history.Gap) bool { return strings.Contains(g.Reason, "was stopped") }) {
			s.Errorf("the time without a server is in none of the gaps %+v", changes.Gaps)
		}
	})
}

// smallDisk is a disk that may be full.
type smallDisk struct {
	vfs.FS
	full atomic.Bool
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if d.full.Load() {
		return vfs.DiskUsage{}, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
}

// A server whose folder is damaged lists what it cannot read, and serves. It says which
// part of the past is damaged, and tells all the rest.
func TestServerWithADamagedFolder(t *testing.T) {
	disk := vfs.NewMem()
	servers(t, disk, func(s *served) {
		// Each of two objects has a block of the table for itself. The second is most of it.
		padding := strings.Repeat(" ", 130<<10)
		large := make([]byte, 12<<10)
		for i := range large {
			large[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"[rand.IntN(64)]
		}
		s.put("a", padding)
		s.put("large", string(large)+padding)
		s.put("small", "1")
		_, err := s.cluster.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}})
		s.must(err)
		s.start()
		s.recorded()
		begun := time.Now()
		s.stop()
		s.start() // which moves the log into a table
		s.stop()
		was := []byte{0}
		history.Damage(s.T, disk, ".sst", func(table, has []byte) int {
			if len(table) < 8<<10 {
				return -1
			}
			has[0] = table[len(table)/2]
			return len(table) / 2
		}, was)

		s.cluster.ResetCounts()
		s.put("small", "2")
		s.start()
		count := func(gvr string) int { return s.cluster.Count("list", corev1.SchemeGroupVersion.WithResource(gvr)) }
		if count("configmaps") == 0 || count("pods") != 0 {
			s.Errorf("%d lists of config maps, %d of pods", count("configmaps"), count("pods"))
		}
		var now struct{ Data values }
		if s.get("/configmaps", &now); now.Data.all()["large"] != string(large)+padding || now.Data.all()["small"] != "2" {
			s.Error("the server does not have what the cluster has")
		}
		at := "at=" + url.QueryEscape(begun.Format(time.RFC3339Nano))
		code, body := s.get("/configmaps?"+at, nil)
		if code != http.StatusInternalServerError || !strings.Contains(body, "read the history of configmaps of cluster test: at "+begun.UTC().Format("2006-01-02T")) || strings.Contains(body, "panic") {
			s.Errorf("the damaged moment: %d %.300s", code, body)
		}
		for _, path := range []string{"/pods?" + at, "/core/v1/configmaps/default/a?" + at, "/pods?changes=true", "/configmaps?changes=true"} {
			if code, body := s.get(path, nil); code != http.StatusOK {
				s.Errorf("%s: %d %.300s", path, code, body)
			}
		}
		s.recorded()
		var changes struct{ Gaps []history.Gap }
		if s.get("/configmaps?changes=true&since=-1m", &changes); len(changes.Gaps) == 0 || changes.Gaps[len(changes.Gaps)-1].Late {
			s.Errorf("the gaps are %+v", changes.Gaps)
		}
		s.put("small", "3")
		time.Sleep(time.Second)
		s.recorded()
	})
}
