package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Rotation says when a file is replaced by a new one, and which old ones are kept.
type Rotation struct {
	// MaxSize is the size of a file in megabytes. 0 means 100.
	MaxSize int
	// MaxBackups is the number of old files. 0 means no limit.
	MaxBackups int
	// MaxAge is the age of old files in days. 0 means no limit.
	MaxAge int
}

// OpenFile opens a file for a [Log], and creates it if there is none, for its owner
// only. When it is full, it is renamed, with the time in its name, and a new one is
// begun.
func OpenFile(path string, r Rotation) (io.WriteCloser, error) {
	// The rotation opens the file at the first event only.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: name one, or use - for standard output", path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return &lumberjack.Logger{Filename: path, MaxSize: r.MaxSize, MaxBackups: r.MaxBackups, MaxAge: r.MaxAge}, nil
}
