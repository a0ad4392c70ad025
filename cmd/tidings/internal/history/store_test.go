package history

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func quiet() Options { return Options{Logger: slog.New(slog.DiscardHandler)} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Folders that cannot be used are refused, with what to do.
func TestFoldersThatCannotBeUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	first, err := Open(dir, quiet())
	must(t, err)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is made with %v, %v", info.Mode(), err)
	}
	refused := func(dir string, opts Options, says string) {
		t.Helper()
		s, err := Open(dir, opts)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v, not %q", err, says)
		}
	}
	refused(dir, quiet(), "another process has it open")
	must(t, first.db.Set(formatKey(), []byte{format + 1}, pebble.Sync))
	must(t, first.Close())
	refused(dir, quiet(), "written by a newer version of tidings")
	refused(filepath.Join(t.TempDir(), "none"), Options{Logger: quiet().Logger, ReadOnly: true}, "there is none in this folder")
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	refused(file, quiet(), "not a directory")
}

func TestAFolderThatOthersCanReadIsReported(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	s, err := Open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	must(t, s.Close())
	if !strings.Contains(log.String(), "chmod go-rwx") {
		t.Errorf("the log has %q", log.String())
	}
}

// When the disk is full, nothing is written, and the history says so. It goes on when there
// is room again.
func TestFullDisk(t *testing.T) {
	opts := quiet()
	opts.reserve = 1 << 62
	s, err := Open(t.TempDir(), opts)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	w, err := s.Writer(testPods)
	must(t, err)
	now := time.Now()
	b := Batch{Time: now, ResourceVersion: 1, Relist: true, Changes: []Version{{Type: Added, Key: "a/x", ResourceVersion: 1, Object: []byte(`{}`)}}}
	if err := w.Append(b); err == nil || !strings.Contains(err.Error(), "make room") || !strings.Contains(err.Error(), "pods of cluster test") {
		t.Errorf("the error is %v", err)
	}
	if r := s.Find(testPods); r.Stats().Failing == nil || r.Stats().Versions != 0 {
		t.Errorf("the state is %+v", r.Stats())
	}
	s.mu.Lock()
	s.opts.reserve, s.looked = 0, time.Time{}
	s.mu.Unlock()
	must(t, w.Append(b))
	if r := s.Find(testPods); r.Stats().Failing != nil || r.Stats().Versions != 1 {
		t.Errorf("the state is %+v", r.Stats())
	}
	must(t, w.Close(now))
}

// An engine that cannot write its log ends the history, and nothing else.
func TestBrokenEngine(t *testing.T) {
	var full atomic.Bool
	injector := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log") {
			return syscall.ENOSPC
		}
		return nil
	})
	s, err := Open("history", Options{Logger: quiet().Logger, fs: errorfs.Wrap(vfs.NewMem(), injector)})
	must(t, err)
	w, err := s.Writer(testPods)
	must(t, err)
	b := Batch{Time: time.Now(), ResourceVersion: 1, Relist: true, Changes: []Version{{Type: Added, Key: "a/x", ResourceVersion: 1, Object: []byte(`{}`)}}}
	must(t, w.Append(b))
	must(t, w.Seen(b.Time, 1))
	full.Store(true)
	for range 2 {
		if err := w.Append(b); err == nil || !strings.Contains(err.Error(), "goes on after a restart") {
			t.Errorf("the error is %v", err)
		}
	}
	state, err := s.Find(testPods).AtVersion(1)
	must(t, err)
	if _, ok, err := state.Get("a/x"); !ok || err != nil {
		t.Errorf("what was written cannot be read: %v, %v", ok, err)
	}
	must(t, state.Close())
	must(t, s.Close())
}

// Retention drops the oldest windows, by age and by size, and what is left can be read.
func TestRetention(t *testing.T) {
	opts := quiet()
	opts.InMemory, opts.For, opts.leastChanges = true, time.Hour, 10
	s, err := Open("history", opts)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	w, err := s.Writer(testPods)
	must(t, err)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := begin
	for i := range 200 {
		now = now.Add(time.Minute)
		typ := Updated
		if i == 0 {
			typ = Added
		}
		must(t, w.Append(Batch{Time: now, ResourceVersion: uint64(i + 1), Relist: i == 0, Objects: 1, Changes: []Version{{Type: typ, Key: "a/x", ResourceVersion: uint64(i + 1), Object: []byte(`{}`)}}}))
		w.wait()
	}
	must(t, s.Retain(now))
	r := s.Find(testPods)
	if age := now.Sub(r.Begin()); age < time.Hour || age > 2*time.Hour {
		t.Errorf("after %s, %s are kept", now.Sub(begin), age)
	}
	state, err := r.At(now.Add(-time.Hour))
	must(t, err)
	if v, ok, err := state.Get("a/x"); err != nil || !ok || v.ResourceVersion != 140 {
		t.Errorf("an hour ago: %+v, %v, %v", v, ok, err)
	}
	must(t, state.Close())
	if _, err := r.At(begin.Add(time.Minute)); err == nil {
		t.Error("the beginning is still kept")
	}

	s.opts.Size = 1 // all but the newest window goes, and that one ends
	must(t, s.Retain(now))
	if n := len(r.windows); n != 1 {
		t.Errorf("there are %d windows", n)
	}
	must(t, w.Append(Batch{Time: now.Add(1), ResourceVersion: 1000, Objects: 1, Changes: []Version{{Type: Updated, Key: "a/x", ResourceVersion: 1000, Object: []byte(`{}`)}}}))
	w.wait()
	must(t, s.Retain(now))
	if n := len(r.windows); n != 1 || r.windows[0].First != 201 {
		t.Errorf("the full window is still there: %+v", r.windows)
	}
	must(t, w.Close(now))
}

// wait waits until the checkpoint in progress is complete.
func (w *Writer) wait() {
	w.series.mu.Lock()
	pending := w.pending
	w.series.mu.Unlock()
	if pending != nil {
		<-pending
	}
}
