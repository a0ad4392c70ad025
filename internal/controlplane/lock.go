//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// A fileLock excludes all other processes on the machine until it is unlocked
// or its process ends.
type fileLock struct{ file *os.File }

// lockFile locks the file at path and creates it if needed. If another process
// holds the lock, it calls waiting once and waits until ctx ends.
func lockFile(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// flock cannot be canceled by ctx, so it is polled.
	for first := true; ; first = false {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &fileLock{file}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		case <-time.After(pollInterval):
		}
	}
}

func (l *fileLock) unlock() { l.file.Close() }
