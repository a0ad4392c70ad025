package answers

import (
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

// forgetPeak resets the kernel's high-water mark of a process's memory.
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// peak is the high-water mark of a process's resident memory in bytes.
func peak(pid int) (uint64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := process.NewStatus()
	if err == nil && status.VmHWM == 0 {
		err = errors.New("the kernel does not report the peak memory of a process")
	}
	return status.VmHWM, err
}
