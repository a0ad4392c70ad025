package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Journal is a folder with the objects of informers. Its methods are safe for concurrent
// use.
type Journal struct {
	dir string
	db  *pebble.DB

	mu     sync.Mutex
	kept   map[string]*keeper
	closed bool

	stop    chan struct{}
	running sync.WaitGroup
}

// ErrClosed is the error of a journal that has been closed.
var ErrClosed = errors.New("the journal is closed")

// flushPeriod is the most that a change waits in memory.
const flushPeriod = time.Second

// Open opens the journal in a folder, which is created for its owner alone if necessary.
// Only one process can have it open. The caller must close it in the end, after the
// informers have been stopped.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	return open(dir, vfs.Default)
}

func open(dir string, fs vfs.FS) (*Journal, error) {
	o := &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: engineLog{}, MemTableSize: 8 << 20, CacheSize: 8 << 20}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionGood })
	db, err := pebble.Open(dir, o)
	switch {
	case errors.Is(err, syscall.EAGAIN), err != nil && strings.Contains(err.Error(), "lock held by current process"):
		return nil, fmt.Errorf("open the journal in %s: it is open already; give each program a folder of its own: %w", dir, err)
	case err != nil:
		return nil, fmt.Errorf("open the journal in %s: if it is damaged, delete the folder, and the informers list: %w", dir, err)
	}
	j := &Journal{dir: dir, db: db, kept: map[string]*keeper{}, stop: make(chan struct{})}
	j.running.Go(j.flush)
	return j, nil
}

// flush writes what waits in memory, until the journal is closed.
func (j *Journal) flush() {
	tick := time.NewTicker(flushPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-j.stop:
			return
		}
		j.mu.Lock()
		var all []*keeper
		for _, k := range j.kept {
			all = append(all, k)
		}
		j.mu.Unlock()
		for _, k := range all {
			k.flush()
		}
	}
}

// Close writes what waits in memory and closes the folder. What informers deliver from
// then on is not kept.
func (j *Journal) Close() error {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if closed {
		return nil
	}
	close(j.stop)
	j.running.Wait()
	for _, k := range j.kept { // nothing is added any more
		k.close()
	}
	if err := j.db.Close(); err != nil {
		return fmt.Errorf("close the journal in %s: %w", j.dir, err)
	}
	return nil
}

// add registers a keeper under its name.
func (j *Journal) add(k *keeper) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return ErrClosed
	case k.name == "" || strings.ContainsRune(k.name, 0):
		return fmt.Errorf("%q is no name for an informer in a journal", k.name)
	case j.kept[k.name] != nil:
		return fmt.Errorf("the journal in %s has an informer %q already: give each a name of its own", j.dir, k.name)
	}
	j.kept[k.name] = k
	return nil
}

// apply writes a batch. The engine panics, see engineLog, if it cannot go on.
func (j *Journal) apply(b *pebble.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return j.db.Apply(b, pebble.NoSync)
}

// engineLog passes on what the engine reports as an error, and nothing else.
type engineLog struct{}

func (engineLog) Infof(string, ...any) {}
func (engineLog) Errorf(format string, args ...any) {
	slog.Error("journal: the storage engine reports an error", "err", fmt.Sprintf(format, args...))
}
func (engineLog) Fatalf(format string, args ...any) {
	panic("the storage engine cannot go on: " + fmt.Sprintf(format, args...))
}
