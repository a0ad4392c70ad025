//go:build unix

package history

import (
	"io"
	"os"
	"syscall"
)

// lockShared locks a file for reading, if no other process has locked it for writing.
func lockShared(f *os.File) error {
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_RDLCK, Whence: io.SeekStart})
}
