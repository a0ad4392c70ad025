package history

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// noise is an object that is not compressed, so that it can be found in the files, and fills
// a block.
func noise() []byte {
	b := make([]byte, 140<<10) // more than a block
	_, _ = rand.Read(b)
	return b
}

// days writes two days of Pods, with an object that is not compressed in each.
func days(t *testing.T, fs vfs.FS) (begin time.Time, blobs [][]byte) {
	t.Helper()
	s, err := Open("history", Options{Logger: discard, fs: fs, leastChanges: 1})
	must(t, err)
	begin = time.Now().Add(-48 * time.Hour).Truncate(time.Second)
	other := testPods
	other.Resource, other.Kind = "services", "Service"
	for _, of := range []Resource{testPods, other} {
		w, err := s.Writer(of)
		must(t, err)
		for day := range 2 {
			at, version := begin.Add(time.Duration(day)*24*time.Hour), uint64(100*day+10)
			blob := noise()
			b := Batch{Time: at, ResourceVersion: version, Relist: day == 0, Objects: 1}
			for i, o := range []Version{{Key: "a/small", Object: []byte(`{}`)}, {Key: "b/large", Object: blob}, {Key: "c/small", Object: []byte(`{}`)}} {
				if o.Type = Updated; day == 0 {
					o.Type = Added
				}
				o.ResourceVersion = version - 2 + uint64(i)
				b.Changes = append(b.Changes, o)
			}
			must(t, w.Append(b))
			must(t, w.Seen(at, version))
			w.wait()
			if of == testPods {
				blobs = append(blobs, blob)
			}
		}
		must(t, w.Close(begin.Add(25*time.Hour)))
	}
	must(t, s.db.Flush())
	must(t, s.Close())
	return begin, blobs
}

// damage changes one byte of a file whose name has a part, where find finds some bytes in it.
func damage(t *testing.T, fs vfs.FS, part string, find func(content, has []byte) int, has []byte) {
	t.Helper()
	names, err := fs.List("history")
	must(t, err)
	for _, name := range names {
		if !strings.Contains(name, part) || strings.HasPrefix(name, "marker.") { // which are empty
			continue
		}
		file, err := fs.OpenReadWrite("history/"+name, vfs.WriteCategoryUnspecified)
		must(t, err)
		info, err := file.Stat()
		must(t, err)
		content := make([]byte, info.Size())
		_, err = file.ReadAt(content, 0)
		must(t, err)
		at := find(content, has)
		if at >= 0 {
			_, err = file.WriteAt([]byte{^has[0]}, int64(at))
			must(t, err)
		}
		must(t, file.Close())
		if at >= 0 {
			return
		}
	}
	t.Fatalf("no file %s has the bytes", part)
}

// A block that the disk has damaged takes nothing else with it: it is reported, with the
// resource and the time, and all the rest is read and written.
func TestDamagedBlock(t *testing.T) {
	fs := vfs.NewMem()
	begin, blobs := days(t, fs)
	damage(t, fs, ".sst", bytes.Index, blobs[0][1000:1040])
	var log bytes.Buffer
	s, err := Open("history", Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), fs: fs})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	r := s.Find(testPods)
	list := func(r *Series, at time.Time) (n int, err error) {
		state, err := r.At(at)
		if err != nil {
			return 0, err
		}
		defer state.Close()
		for _, err := range state.All("", "") {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	_, err = list(r, begin.Add(time.Minute))
	for _, says := range []string{"pods of cluster test", begin.UTC().Format("2006-01-02")} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %v, without %q", err, says)
		}
	}
	if n, err := list(r, begin.Add(25*time.Hour)); n != 3 || err != nil {
		t.Errorf("the other day has %d objects: %v", n, err)
	}
	other := testPods
	other.Resource, other.Kind = "services", "Service"
	if n, err := list(s.Find(other), begin.Add(time.Minute)); n != 3 || err != nil {
		t.Errorf("another resource has %d objects: %v", n, err)
	}
	_ = s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false) // which reads the block, too
	w, err := s.Writer(testPods)
	must(t, err)
	must(t, w.Append(Batch{Time: time.Now(), ResourceVersion: 300, Changes: []Version{{Type: Updated, Key: "a/small", ResourceVersion: 300, Object: []byte(`{}`)}}}))
	must(t, w.Close(time.Now()))
	if !strings.Contains(log.String(), "is damaged") || !strings.Contains(log.String(), ".sst") {
		t.Errorf("the log does not name the file: %s", log.String())
	}
}

// A folder whose directory of files is damaged is refused, with what to do. A log whose end
// is damaged is read up to there.
func TestDamagedFolder(t *testing.T) {
	t.Run("manifest", func(t *testing.T) {
		fs := vfs.NewMem()
		days(t, fs)
		damage(t, fs, "MANIFEST", bytes.Index, []byte("leveldb.BytewiseComparator"))
		s, err := Open("history", Options{Logger: discard, fs: fs})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "in history") || !strings.Contains(err.Error(), "move the folder away") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("log", func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		s, err := Open("history", Options{Logger: discard, fs: fs})
		must(t, err)
		w, err := s.Writer(testPods)
		must(t, err)
		now := time.Now()
		for version := uint64(1); version <= 3; version++ {
			must(t, w.Append(Batch{Time: now, ResourceVersion: version, Changes: []Version{{Type: Added, Key: fmt.Sprint("a/", version), ResourceVersion: version, Object: []byte(`"the end of the log"`)}}}))
		}
		left := fs.CrashClone(vfs.CrashCloneCfg{})
		must(t, w.Close(now))
		must(t, s.Close())
		damage(t, left, ".log", bytes.LastIndex, []byte("the end"))
		s, err = Open("history", Options{Logger: discard, fs: left})
		must(t, err)
		defer func() { must(t, s.Close()) }()
		if _, version := s.Find(testPods).Seen(); version != 2 {
			t.Errorf("the history reaches up to %d, not 2", version)
		}
	})
}

// A disk that is full when tables are written stops neither the reads nor the process; the
// tables are written when there is room.
func TestFullDiskWhileCompacting(t *testing.T) {
	var full atomic.Bool
	var refused atomic.Int64
	injector := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".sst") && op.Kind != errorfs.OpFileClose && op.Kind != errorfs.OpRemove {
			refused.Add(1)
			return syscall.ENOSPC
		}
		return nil
	})
	s, err := Open("history", Options{Logger: discard, fs: errorfs.Wrap(vfs.NewMem(), injector)})
	must(t, err)
	w, err := s.Writer(testPods)
	must(t, err)
	now, version := time.Now(), uint64(0)
	write := func() {
		t.Helper()
		version++
		must(t, w.Append(Batch{Time: now, ResourceVersion: version, Changes: []Version{{Type: Updated, Key: "a/x", ResourceVersion: version, Object: noise()}}}))
	}
	write()
	must(t, s.db.Flush())
	write()
	full.Store(true)
	flushed, err := s.db.AsyncFlush()
	must(t, err)
	for refused.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	write() // the log has room still
	full.Store(false)
	<-flushed
	must(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	for v := uint64(1); v <= version; v++ {
		state, err := s.Find(testPods).AtVersion(v)
		must(t, err)
		if got, ok, err := state.Get("a/x"); err != nil || !ok || got.ResourceVersion != v {
			t.Errorf("version %d is read as %d, %v, %v", v, got.ResourceVersion, ok, err)
		}
		must(t, state.Close())
	}
	must(t, w.Close(now))
	must(t, s.Close())
}

// When the clock is set, back or forward, everything can be read by version, and each time
// means the newest state that had it.
func TestClocksThatJump(t *testing.T) {
	s, err := Open("history", Options{Logger: discard, InMemory: true})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	w, err := s.Writer(testPods)
	must(t, err)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	clock := []time.Duration{0, 1, 5, 6, 2, 3, -4, -3, 8} // hours after noon
	for i, hour := range clock {
		typ, version := Updated, uint64(i+1)
		if i == 0 {
			typ = Added
		}
		must(t, w.Append(Batch{Time: noon.Add(hour * time.Hour), ResourceVersion: version, Changes: []Version{{Type: typ, Key: "a/x", ResourceVersion: version, Object: fmt.Append(nil, version)}}}))
		w.wait()
	}
	r := s.Find(testPods)
	want := func(moment string, version uint64) func(*State, error) {
		return func(state *State, err error) {
			t.Helper()
			must(t, err)
			defer state.Close()
			if v, ok, err := state.Get("a/x"); err != nil || !ok || v.ResourceVersion != version {
				t.Errorf("at %s there is version %d (%v, %v), not %d", moment, v.ResourceVersion, ok, err, version)
			}
		}
	}
	for i := range clock {
		want(fmt.Sprint("version ", i+1), uint64(i+1))(r.AtVersion(uint64(i + 1)))
	}
	for hour, version := range map[time.Duration]uint64{-4: 7, -3: 8, -1: 8, 9: 9} {
		want(fmt.Sprint(hour, "h"), version)(r.At(noon.Add(hour * time.Hour)))
	}
	begin := (*BeginError)(nil)
	if _, err := r.At(noon.Add(-5 * time.Hour)); !errors.As(err, &begin) || !begin.Begin.Equal(noon.Add(-4*time.Hour)) {
		t.Errorf("before the beginning: %v", err)
	}
	first, err := r.AtVersion(1)
	must(t, err)
	defer first.Close()
	next := uint64(2)
	for c, err := range first.ChangesAfter(first.Cursor(), func(string) bool { return true }).Read(t.Context(), time.Time{}) {
		must(t, err)
		if c.ResourceVersion != next {
			t.Errorf("change %d is delivered instead of %d", c.ResourceVersion, next)
		}
		next++
	}
	if next != uint64(len(clock))+1 {
		t.Errorf("there are changes up to %d", next-1)
	}
	must(t, w.Close(noon))
}

// A large object, and many versions of one.
func TestLargeObjectsAndManyVersions(t *testing.T) {
	s, err := Open("history", Options{Logger: discard, InMemory: true, leastChanges: 1500, readBytes: 1 << 20})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	w, err := s.Writer(testPods)
	must(t, err)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	large := bytes.Repeat(noise(), 22) // 3 MB
	must(t, w.Append(Batch{Time: begin, ResourceVersion: 1, Changes: []Version{{Type: Added, Key: "a/large", ResourceVersion: 1, Object: large, Managed: []byte("m"), ManagedAt: 1}}}))
	version := uint64(1)
	for range 100 {
		var b Batch
		for range 100 {
			version++
			b.Changes = append(b.Changes, Version{Type: Updated, Key: "a/many", ResourceVersion: version, Object: fmt.Append(nil, version)})
		}
		b.Time, b.ResourceVersion, b.Objects = begin.Add(time.Duration(version)*time.Second), version, 2
		must(t, w.Append(b))
	}
	w.wait()
	r := s.Find(testPods)
	first, err := r.At(begin)
	must(t, err)
	changes := 0
	for _, err := range first.ChangesOf(first.Cursor(), "a/many").Read(t.Context(), time.Time{}) {
		must(t, err)
		changes++
	}
	must(t, first.Close())
	if changes != 10_000 {
		t.Errorf("the object has %d changes", changes)
	}
	for _, v := range []uint64{2, 5000, version} {
		state, err := r.AtVersion(v)
		must(t, err)
		if got, ok, err := state.Get("a/many"); err != nil || !ok || got.ResourceVersion != v {
			t.Errorf("version %d is read as %d (%v, %v)", v, got.ResourceVersion, ok, err)
		}
		if got, ok, err := state.Get("a/large"); err != nil || !ok || !bytes.Equal(got.Object, large) {
			t.Errorf("the large object is not what was written at %d (%v, %v)", v, ok, err)
		}
		must(t, state.Close())
	}
	must(t, w.Close(begin))
}
