package soak

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// BuildServer builds the command tidings in a folder, optionally with a [Mutant] in its
// source, and returns its path.
func BuildServer(ctx context.Context, dir string, mutant *Mutant, race bool) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tidings-io/tidings").Output()
	if err != nil {
		return "", fmt.Errorf("find the source of tidings: %w", withStderr(err))
	}
	root := strings.TrimSpace(string(out))
	binary := filepath.Join(dir, "tidings")
	args := []string{"build", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	if mutant != nil {
		overlay, err := mutant.overlay(root, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	build := exec.CommandContext(ctx, "go", append(args, "./cmd/tidings")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tidings: %w\n%s", err, out)
	}
	return binary, nil
}

func withStderr(err error) error {
	var failed *exec.ExitError
	if errors.As(err, &failed) && len(failed.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return err
}

// Process is a running server.
type Process struct {
	// URL of the server.
	URL string

	cmd    *exec.Cmd
	log    string
	ended  chan struct{}
	err    error
	client *http.Client
}

// FreeAddress returns an unused address of the loopback interface.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Serve starts a server and returns when it is ready. The server logs to the file log.
// environment is added to this process's environment.
func Serve(ctx context.Context, binary, address, log string, environment []string, flags ...string) (*Process, error) {
	p := &Process{URL: "http://" + address, log: log, ended: make(chan struct{}), client: &http.Client{Transport: &http.Transport{}}}
	if slices.Contains(flags, "--authentication") {
		// With a certificate that it makes when it starts.
		p.URL = "https://" + address
		p.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	}
	p.cmd = exec.Command(binary, append([]string{"serve", "--listen", address}, flags...)...)
	p.cmd.Env = append(os.Environ(), environment...)
	return p, p.start(ctx, p.ready)
}

// start starts the command and returns when it is ready. After an error it has ended.
func (p *Process) start(ctx context.Context, ready func(context.Context) bool) error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	started := make(chan error)
	go func() {
		// On Linux it dies with the thread that started it.
		runtime.LockOSThread()
		dieWithParent(p.cmd)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	for !ready(ctx) {
		select {
		case <-p.ended:
			return fmt.Errorf("it ended: %w\n%s", p.err, p.Log())
		default:
		}
		if !Sleep(ctx, 20*time.Millisecond) {
			return errors.Join(fmt.Errorf("it does not become ready: %w\n%s", ctx.Err(), p.Log()), p.Kill())
		}
	}
	return nil
}

func (p *Process) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Kill ends the server as a crash does: kill -9.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

// Stop ends the server as an administrator does.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

func (p *Process) end(signal syscall.Signal) error {
	p.client.CloseIdleConnections()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// Ended is closed when the server has ended for any reason.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// PID is the server's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns the end of the server's log.
func (p *Process) Log() string {
	b, _ := os.ReadFile(p.log)
	if len(b) > 8<<10 {
		b = b[len(b)-8<<10:]
	}
	return string(b)
}
