//go:build unix

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// A process is a running program of the control plane. Its output goes to a
// file.
type process struct {
	name string
	log  string // path of the file
	pid  int

	done chan struct{} // closed when the process has ended and been reaped
	err  error         // why it ended; read after done
}

// startProcess starts cmd in the process group pgid, or in a new group if pgid
// is 0. The output is appended to the file log.
func startProcess(cmd *exec.Cmd, log string, pgid int) (*process, error) {
	name := filepath.Base(cmd.Path)
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer file.Close()

	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
	dieWithParent(cmd.SysProcAttr)

	p := &process{name: name, log: log, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux kills the child when the thread that started it ends, not the
		// process, so the thread has to live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig to the process. It returns no error if the process has
// ended.
func (p *process) signal(sig syscall.Signal) error {
	if p.ended() { // its pid may have been reused
		return nil
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// stop sends sig to the process and returns when it has ended. If ctx ends
// first, the process is killed.
func (p *process) stop(ctx context.Context, sig syscall.Signal) error {
	if err := p.signal(sig); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return fmt.Errorf("%s did not stop and was killed: %w", p.name, context.Cause(ctx))
}

// waitReady calls ready until it returns nil. It fails if ctx or the process
// ends, with the last log lines of the process.
func (p *process) waitReady(ctx context.Context, ready func(context.Context) error) error {
	err := poll(ctx, p.done, ready)
	if p.ended() {
		err = fmt.Errorf("it ended: %w", errors.Join(p.err, err))
	}
	if err != nil {
		return fmt.Errorf("%s is not ready: %w\n%s", p.name, err, p.tail())
	}
	return nil
}

// tail returns the last log lines of the process.
func (p *process) tail() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	return tail(log)
}

// tail returns the last lines of a log, which contain the reason of a failure.
func tail(log []byte) string {
	const lines = 30
	log = bytes.TrimSpace(log)
	end := len(log)
	for range lines {
		end = bytes.LastIndexByte(log[:end], '\n')
		if end < 0 {
			return string(log)
		}
	}
	return "[…]" + string(log[end:])
}
