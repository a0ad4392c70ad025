package history

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readOnlyFS is a file system of which nothing can be changed. Pebble opens a folder with
// it although the folder is on a read-only medium: it writes nothing then, but it would
// create the lock file.
type readOnlyFS struct{ vfs.FS }

func refused(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("the history is open for reading only: %w", fs.ErrPermission)}
}

func (readOnlyFS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused("create", name)
}

func (readOnlyFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, refused("open", name)
}

func (readOnlyFS) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused("create", name)
}

func (readOnlyFS) Link(_, name string) error                 { return refused("link", name) }
func (readOnlyFS) Rename(_, name string) error               { return refused("rename", name) }
func (readOnlyFS) Remove(name string) error                  { return refused("remove", name) }
func (readOnlyFS) RemoveAll(name string) error               { return refused("remove", name) }
func (readOnlyFS) MkdirAll(name string, _ os.FileMode) error { return refused("mkdir", name) }

// Unwrap returns nil: the file system below must not be used directly.
func (readOnlyFS) Unwrap() vfs.FS { return nil }

// errInUse says that a server writes to the folder.
var errInUse = errors.New("the lock file is locked")

// Lock locks the existing lock file against a server that would write to the folder. It
// creates none: where there is no lock file, no server has had the folder open.
func (readOnlyFS) Lock(name string) (io.Closer, error) {
	f, err := os.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return io.NopCloser(nil), nil
	case errors.Is(err, fs.ErrPermission):
		return nil, err
	case err != nil: // other systems do not open a file that is locked
		return nil, fmt.Errorf("%w: %w", errInUse, err)
	}
	if err := lockShared(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %w", errInUse, err)
	}
	return f, nil
}

// folders are those that this process has open. Locks of files are between processes
// only, and closing any file of a folder's lock would end the lock.
var folders struct {
	mu      sync.Mutex
	writing map[string]bool
	reading map[string]int
}

// enterFolder registers the use of a folder. The caller must call leave in the end.
func enterFolder(dir string, readOnly bool) (leave func(), err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	folders.mu.Lock()
	defer folders.mu.Unlock()
	if folders.writing == nil {
		folders.writing, folders.reading = map[string]bool{}, map[string]int{}
	}
	switch {
	case folders.writing[dir], !readOnly && folders.reading[dir] > 0:
		return nil, fmt.Errorf("%w: by this process", errInUse)
	case readOnly:
		folders.reading[dir]++
	default:
		folders.writing[dir] = true
	}
	return sync.OnceFunc(func() {
		folders.mu.Lock()
		defer folders.mu.Unlock()
		if !readOnly {
			delete(folders.writing, dir)
		} else if folders.reading[dir]--; folders.reading[dir] == 0 {
			delete(folders.reading, dir)
		}
	}), nil
}
