package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// format is the version of the folder's layout. A newer one is refused.
const format = 2

// Options configure a [Store].
type Options struct {
	// For is how long versions are kept. 0 means 7 days.
	For time.Duration
	// Size is the disk space that the store may take, in bytes. If it takes more, the
	// oldest windows are dropped, whatever For says. 0 means 10 GiB.
	Size int64
	// InMemory keeps the store in memory instead of in a folder.
	InMemory bool
	// ReadOnly opens a folder that no process writes, for reading. Nothing in the folder
	// is changed, so it may be on a read-only medium. Of several clusters of one name, all
	// but the newest have their uid added to the name; see [Store.Clusters].
	ReadOnly bool
	// Logger logs what goes wrong in the background. nil means slog.Default().
	Logger *slog.Logger

	// For tests.
	fs           vfs.FS
	leastChanges int
	readBytes    int
	reserve      uint64
}

// Store is the history of one or more clusters in a folder. Its methods are safe for
// concurrent use.
type Store struct {
	opts Options
	dir  string
	log  *slog.Logger
	db   *pebble.DB

	reading atomic.Int64 // logs

	broken atomic.Pointer[error] // what has ended the storage engine
	leave  func()                // the folder, see enterFolder

	mu     sync.Mutex
	series map[uint32]*Series
	closed bool
	room   error // whether there was, when it was last checked
	looked time.Time

	namesakes map[string]string // see [Store.nameApart]

	stop     chan struct{}
	stopOnce sync.Once
	running  sync.WaitGroup // the retention and the checkpoints in progress
}

// Open opens the store in a folder, which is created if necessary. Only one process can
// have it open, unless it opens it with [Options.ReadOnly] and no other writes.
func Open(dir string, opts Options) (*Store, error) {
	if opts.For <= 0 {
		opts.For = 7 * 24 * time.Hour
	}
	if opts.Size <= 0 {
		opts.Size = 10 << 30
	}
	if opts.reserve == 0 {
		opts.reserve = reserve
	}
	if opts.leastChanges == 0 {
		opts.leastChanges = leastChanges
	}
	if opts.readBytes == 0 {
		opts.readBytes = readBytes
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Store{opts: opts, dir: dir, log: opts.Logger.With("history", dir), series: map[uint32]*Series{}, stop: make(chan struct{})}
	if err := s.makeFolder(); err != nil {
		return nil, s.openError(err)
	}
	var err error
	if s.leave, err = s.enter(); err != nil {
		return nil, s.openError(err)
	}
	if s.db, err = pebble.Open(dir, s.pebbleOptions()); err != nil {
		s.leave()
		return nil, s.openError(err)
	}
	if err = s.load(); err != nil {
		defer s.leave()
		return nil, errors.Join(s.openError(err), s.db.Close())
	}
	if opts.ReadOnly {
		s.nameApart()
	} else {
		s.running.Go(s.retain)
	}
	return s, nil
}

func (s *Store) enter() (leave func(), err error) {
	if s.opts.InMemory || s.opts.fs != nil {
		return func() {}, nil
	}
	return enterFolder(s.dir, s.opts.ReadOnly)
}

// makeFolder makes the folder for its owner alone: it will have the objects of clusters.
func (s *Store) makeFolder() error {
	if s.opts.InMemory || s.opts.ReadOnly || s.opts.fs != nil {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(s.dir)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		s.log.Warn("the folder of the history may be read by others of this machine: run chmod go-rwx on it", "mode", info.Mode().Perm().String())
	}
	return err
}

func (s *Store) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:                 vfs.Default,
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             pebbleLog{s.log},
		EventListener:      &pebble.EventListener{DataCorruption: s.damagedFile},
		CacheSize:          32 << 20,
		// The changes of a window are spread over all of its objects, so that each
		// compaction of level 0 rewrites the window. Few of them take little CPU.
		MemTableSize:          32 << 20,
		L0CompactionThreshold: 6,
		L0StopWritesThreshold: 1000,
		ReadOnly:              s.opts.ReadOnly,
		ErrorIfNotExists:      s.opts.ReadOnly,
		// The folder of a cluster of months may have thousands of files.
		MaxOpenFiles: 500,
	}
	switch {
	case s.opts.fs != nil:
		o.FS = s.opts.fs
	case s.opts.InMemory:
		o.FS, o.MemTableSize = vfs.NewMem(), 16<<20
	case s.opts.ReadOnly:
		o.FS = readOnlyFS{vfs.Default}
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 128 << 10
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionGood })
	return o
}

// pebbleLog passes on what Pebble reports as an error, and nothing else.
type pebbleLog struct{ log *slog.Logger }

func (l pebbleLog) Infof(string, ...any) {}
func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("the storage engine reports an error", "err", fmt.Sprintf(format, args...))
}
func (l pebbleLog) Fatalf(format string, args ...any) {
	panic("history: the storage engine cannot go on: " + fmt.Sprintf(format, args...))
}

// damagedFile logs that a file cannot be read. By default, Pebble would end the process.
func (s *Store) damagedFile(info pebble.DataCorruptionInfo) {
	s.log.Error("a file of the history is damaged: what it has cannot be read, everything else can", "file", info.Path, "err", info.Details)
}

// openError says what to do about an error of Open.
func (s *Store) openError(err error) error {
	dir := s.dir
	switch {
	case errors.Is(err, errInUse) && s.opts.ReadOnly:
		return fmt.Errorf("open the history in %s: a server has the folder open; ask the server with --server, or read a copy that was made while no server ran, or from a snapshot of the disk: %w", dir, err)
	case errors.Is(err, errInUse), errors.Is(err, syscall.EAGAIN), strings.Contains(err.Error(), "lock held by current process"):
		return fmt.Errorf("open the history in %s: another process has it open; give each server a folder of its own: %w", dir, err)
	case errors.Is(err, fs.ErrPermission) && s.opts.ReadOnly:
		return fmt.Errorf("open the history in %s: you may not read the folder: %w", dir, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("open the history in %s: the folder cannot be written; choose another or change its owner: %w", dir, err)
	case errors.Is(err, fs.ErrNotExist), strings.HasSuffix(err.Error(), "does not exist"):
		return fmt.Errorf("open the history in %s: there is none in this folder: %w", dir, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("open the history in %s: its files are damaged: check the disk, move the folder away, and start with an empty one or a copy: %w", dir, err)
	}
	return fmt.Errorf("open the history in %s: %w", dir, err)
}

// load reads the format and the series.
func (s *Store) load() error {
	found, err := s.get(formatKey())
	switch {
	case err != nil:
		return err
	case found == nil && s.opts.ReadOnly:
		return errors.New("there is none in this folder")
	case found == nil:
		if err := s.db.Set(formatKey(), []byte{format}, pebble.Sync); err != nil {
			return err
		}
	case len(found) == 1 && found[0] < format:
		return errors.New("it was begun by an unreleased version of tidings: use another folder")
	case len(found) != 1 || found[0] > format:
		return fmt.Errorf("it was written by a newer version of tidings (format %d, this one reads up to %d): use that version, or another folder", found[0], format)
	}
	return s.scan([]byte{kindSeries}, func(key, value []byte) error {
		r := &Series{store: s, id: binary.BigEndian.Uint32(key[1:])}
		if err := json.Unmarshal(value, &r.Of); err != nil {
			return fmt.Errorf("series %d: %w", r.id, err)
		}
		if err := r.load(); err != nil {
			return fmt.Errorf("%s: %w", r.Of, err)
		}
		s.series[r.id] = r
		return nil
	})
}

// Close ends the store. Writers and states must have been closed.
func (s *Store) Close() error {
	s.stopOnce.Do(func() { close(s.stop) })
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	defer s.leave()
	if err := s.db.Close(); err != nil && s.broken.Load() == nil { // writers were told what is broken
		return fmt.Errorf("close the history in %s: %w", s.dir, err)
	}
	return nil
}

// Find returns the newest series of a resource of a cluster, nil if there is none; see
// [Store.FindAll].
func (s *Store) Find(r Resource) *Series {
	if all := s.FindAll(r); len(all) > 0 {
		return all[0]
	}
	return nil
}

// FindAll lists the series of a resource of a cluster, newest first. There are several if
// the resource was mirrored again, with another version or scope: each ended before the one
// in front of it began. The first is the one of the version and scope of r, if there is
// one. r.ClusterUID may be empty, for a cluster that cannot be asked.
func (s *Store) FindAll(r Resource) []*Series {
	var found []*Series
	for _, x := range s.All() {
		if o := x.Of; o.Cluster == r.Cluster && o.Group == r.Group && o.Resource == r.Resource && o.Namespace == r.Namespace && (r.ClusterUID == "" || o.ClusterUID == r.ClusterUID) {
			found = append(found, x)
		}
	}
	if len(found) == 0 {
		return nil
	}
	newest := found[len(found)-1] // of All, the youngest
	found = slices.DeleteFunc(found, func(x *Series) bool { return x.Of.ClusterUID != newest.Of.ClusterUID })
	for _, x := range found {
		if x.Of.Version == r.Version && x.Of.Namespaced == r.Namespaced {
			newest = x
		}
	}
	out := []*Series{newest}
	begin := newest.Begin()
	slices.SortFunc(found, func(x, y *Series) int { return y.end().Compare(x.end()) })
	for _, x := range found {
		if end := x.end(); x != newest && !end.IsZero() && (begin.IsZero() || !end.After(begin)) {
			out, begin = append(out, x), x.Begin()
		}
	}
	return out
}

// All lists the series, by cluster, group, resource and age.
func (s *Store) All() []*Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Series
	for _, x := range s.series {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *Series) int { return a.Of.compare(b.Of, a.id, b.id) })
	return all
}

// open returns the series of exactly this resource, and begins it if there is none.
func (s *Store) open(r Resource) (*Series, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := uint32(1)
	for id, x := range s.series {
		if x.Of == r {
			return x, nil
		}
		next = max(next, id+1)
	}
	x := &Series{store: s, id: next, Of: r, next: 1}
	value, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := s.db.Set(seriesKey(next), value, pebble.Sync); err != nil {
		return nil, fmt.Errorf("begin the history of %s: %w", r, err)
	}
	s.series[next] = x
	return x, nil
}

// get returns a copy of a value, nil if there is none.
func (s *Store) get(key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// scan calls each for the keys that begin with prefix, in order. Key and value are only
// valid during the call.
func (s *Store) scan(prefix []byte, each func(key, value []byte) error) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := each(it.Key(), it.Value()); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return it.Close()
}

// reserve is the disk space that is left to others, and to the engine for rewriting files.
// Without it, the engine could not go on in the middle of a write.
const reserve = 256 << 20

// checkRoom returns an error if there is too little space to write. It looks once a second.
func (s *Store) checkRoom() error {
	if s.opts.InMemory {
		return nil
	}
	disk := s.opts.fs
	if disk == nil {
		disk = vfs.Default
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < time.Second {
		return s.room
	}
	s.looked, s.room = time.Now(), nil
	if usage, err := disk.GetDiskUsage(s.dir); err == nil && usage.AvailBytes < s.opts.reserve {
		s.room = fmt.Errorf("the disk of %s has %d MiB left, and the history leaves %d MiB: make room, or set a smaller --history-size", s.dir, usage.AvailBytes>>20, s.opts.reserve>>20)
	}
	return s.room
}

// apply writes a batch, durably. If the engine cannot go on, because its log cannot be
// written, every later call fails, too: the history goes on after a restart.
func (s *Store) apply(b *pebble.Batch) error {
	if err := s.checkRoom(); err != nil {
		return err
	}
	return s.commit(b)
}

// commit is apply for a batch that makes room.
func (s *Store) commit(b *pebble.Batch) (err error) {
	if broken := s.broken.Load(); broken != nil {
		return *broken
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v; the history goes on after a restart", p)
			s.broken.Store(&err)
		}
	}()
	return s.db.Apply(b, pebble.Sync)
}

// set is apply for one key.
func (s *Store) set(key, value []byte) error {
	b := s.db.NewBatch()
	defer b.Close()
	if err := b.Set(key, value, nil); err != nil {
		return err
	}
	return s.apply(b)
}

// DiskUsage is the disk space that the store takes, in bytes.
func (s *Store) DiskUsage() uint64 { return s.db.Metrics().DiskSpaceUsage() }
