//go:build unix

package controlplane

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// A reaper cleans up after a cluster whose process ended without stopping it:
// by a panic in a test, by go test's timeout, by SIGKILL. It is a shell that
// waits for the end of its input, which comes when this process ends in
// whatever way. It then kills the rest of the cluster's process group and
// removes its folder.
type reaper struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// Each line of the input is the process group to kill; the last line counts.
// Removing the folder is repeated until it is gone, because a dying process may
// still write to it.
const reaperScript = `
trap '' HUP INT TERM
pgid=
while read -r line; do pgid=$line; done
[ -z "$pgid" ] || kill -KILL -- "-$pgid" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf -- "$1" && exit
	sleep 0.1
done
exit 1`

// startReaper starts the reaper for the folder dir.
func startReaper(dir string) (*reaper, error) {
	cmd := exec.Command("/bin/sh", "-c", reaperScript, "controlplane-reaper", dir)
	// It runs in a folder that stays, and in a process group of its own, so
	// that an interrupt from the terminal does not end it.
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	return &reaper{cmd, input}, nil
}

// kill sets the process group that the reaper will kill, or none if pgid is 0.
func (r *reaper) kill(pgid int) error {
	line := "\n"
	if pgid != 0 {
		line = strconv.Itoa(pgid) + "\n"
	}
	if _, err := io.WriteString(r.input, line); err != nil {
		return fmt.Errorf("set the process group for the reaper: %w", err)
	}
	return nil
}

// clean makes the reaper clean up now, and returns when it is done.
func (r *reaper) clean() error {
	r.input.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("clean up after the control plane: %w", err)
	}
	return nil
}
