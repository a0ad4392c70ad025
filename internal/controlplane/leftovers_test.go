//go:build unix

package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestStopLeavesNothing(t *testing.T) {
	others := goleak.IgnoreCurrent()
	defer goleak.VerifyNone(t, others)
	c, err := Launch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left := leftovers{dir: c.dir, pids: []int{c.PID("etcd"), c.PID(apiServer), c.reaper.cmd.Process.Pid}}
	if left.check() == nil {
		t.Fatal("a running cluster looks as if nothing of it were there")
	}
	for range 2 { // the second time there is nothing to do
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if err := left.check(); err != nil {
		t.Errorf("after Stop: %v", err)
	}
	if err := c.StartAPIServer(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("StartAPIServer after Stop: %v, want %v", err, errStopped)
	}
}

func TestFailedLaunchLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if _, err := Launch(t.Context(), WithAPIServerFlags("--no-such-flag")); err == nil {
		t.Fatal("Launch succeeded with a flag that there is not")
	}
	if entries, err := os.ReadDir(tmp); err != nil || len(entries) > 0 {
		t.Errorf("after a failed Launch the temporary folder holds %v (error %v), want nothing", entries, err)
	}
}

// endEnv is set in a child process of the test. The child starts a cluster,
// prints where it is, and ends as the variable says, without stopping the
// cluster.
const endEnv = "CONTROLPLANE_TEST_END"

// TestLeaveCluster is the child process of TestEndOfProcessLeavesNothing.
func TestLeaveCluster(t *testing.T) {
	end := os.Getenv(endEnv)
	if end == "" {
		t.Skip("run by TestEndOfProcessLeavesNothing")
	}
	c, err := Launch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("cluster", c.dir, c.PID("etcd"), c.PID(apiServer), c.reaper.cmd.Process.Pid)
	switch end {
	case "panic":
		done := make(chan struct{})
		go func() { panic("no test recovers from this") }()
		<-done
	case "exit":
		os.Exit(3)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

func TestEndOfProcessLeavesNothing(t *testing.T) {
	bin := Shared(t).BinDir() // built, so that the process starts at once
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"panic", "exit", "kill"} {
		t.Run(end, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestLeaveCluster$")
			cmd.Env = append(os.Environ(), endEnv+"="+end, EnvDir+"="+bin)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			left, printed := readLeftovers(stdout)
			if err := cmd.Wait(); err == nil {
				t.Errorf("the process ended well, want %s", end)
			}
			if left.dir == "" {
				t.Fatalf("the process started no cluster:\n%s", printed)
			}
			// The reaper outlives its parent, so its end cannot be waited for.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := poll(ctx, nil, func(context.Context) error { return left.check() }); err != nil {
				t.Errorf("after %s: %v", end, err)
			}
		})
	}
}

// leftovers are what remains of a cluster that is not cleaned up.
type leftovers struct {
	dir  string
	pids []int
}

// readLeftovers reads leftovers from the output of TestLeaveCluster, to its
// end.
func readLeftovers(output io.Reader) (left leftovers, printed string) {
	var all strings.Builder
	lines := bufio.NewScanner(io.TeeReader(output, &all))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "cluster" {
			continue
		}
		left.dir = fields[1]
		for _, field := range fields[2:] {
			if pid, err := strconv.Atoi(field); err == nil {
				left.pids = append(left.pids, pid)
			}
		}
	}
	return left, all.String()
}

// check returns an error that names something that remains.
func (l leftovers) check() error {
	if _, err := os.Stat(l.dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the folder %s is still there (%v)", filepath.Base(l.dir), err)
	}
	for _, pid := range l.pids {
		if alive(pid) {
			return fmt.Errorf("process %d still runs", pid)
		}
	}
	return nil
}

// alive reports whether a process runs. A process that has ended but has not
// been reaped, such as an orphan in a container without an init, does not run.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
