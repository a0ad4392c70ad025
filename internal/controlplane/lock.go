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

// A fileLock is held against every other process on the machine until it is
// unlocked or its process ends, however that ends.
type fileLock struct{ file *os.File }

// lockFile takes the lock of the file at path, which it makes if need be. If
// another holds the lock it calls waiting, once, and waits until ctx ends.
func lockFile(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// flock waits without regard to ctx, so it is asked again and again.
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
