//go:build unix

package cli_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// asProgram makes the test binary be the program instead.
const asProgram = "TIDINGS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main())
	}
	// The rotation of the audit log keeps a goroutine for good.
	goleak.VerifyTestMain(controlplane.Tests(m), goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// program starts tidings as a process of its own.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, out io.ReadCloser, errs *strings.Builder) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	errs = &strings.Builder{}
	cmd.Stderr = errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out, errs
}

func TestInterruptEndsTheProgramCleanly(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, out, errs := program(t, "watch", "pods", "--kubeconfig", w.kubeconfig)
		line, _ := bufio.NewReader(out).ReadString('\n')
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || errs.Len() > 0 || !alike(line, "* ADDED Pod default/p *") {
			t.Errorf("%v: %v, %q, %q", signal, err, line, errs)
		}
	}
}

// tidings watch pods | head -1
func TestBrokenPipeEndsTheProgramSilently(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	cmd, out, errs := program(t, "watch", "pods", "--kubeconfig", w.kubeconfig)
	line, _ := bufio.NewReader(out).ReadString('\n')
	out.Close()
	w.create(pod("q"))
	err := cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if err != nil && !(status.Signaled() && status.Signal() == syscall.SIGPIPE) || errs.Len() > 0 || !alike(line, "* ADDED Pod default/p *") {
		t.Errorf("%v, %q, %q", err, line, errs)
	}
}
