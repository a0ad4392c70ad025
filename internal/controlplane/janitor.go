//go:build unix

package controlplane

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// A janitor cleans up after a cluster whose process ended without stopping it:
// by a panic in a test, by go test's timeout, by SIGKILL. It is a shell that
// waits for the end of its input, which comes with the end of this process
// however that happens, then kills what is left of the cluster's process group
// and removes its folder.
type janitor struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// Each line of the input is the process group to kill; the last counts. The
// folder is removed again until it is gone, because a process that is still
// dying may put a file into it.
const janitorScript = `
trap '' HUP INT TERM
pgid=
while read -r line; do pgid=$line; done
[ -z "$pgid" ] || kill -KILL -- "-$pgid" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf -- "$1" && exit
	sleep 0.1
done
exit 1`

// startJanitor starts the janitor of the folder dir.
func startJanitor(dir string) (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "controlplane-janitor", dir)
	// Not in a folder that may go, and not in the test's process group, so that
	// an interrupt from the terminal leaves the janitor to do its work.
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	return &janitor{cmd, input}, nil
}

// kill has the janitor kill the process group pgid when its time comes, or no
// group any more if pgid is 0.
func (j *janitor) kill(pgid int) error {
	line := "\n"
	if pgid != 0 {
		line = strconv.Itoa(pgid) + "\n"
	}
	if _, err := io.WriteString(j.input, line); err != nil {
		return fmt.Errorf("tell the janitor what to kill: %w", err)
	}
	return nil
}

// clean has the janitor do its work now, and returns when it is done.
func (j *janitor) clean() error {
	j.input.Close()
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("clean up after the control plane: %w", err)
	}
	return nil
}
