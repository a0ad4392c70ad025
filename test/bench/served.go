package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// servers are a kube-apiserver and a mirror of it, each a process of its own that
// serves over TLS and asks who the caller is and whether they may.
type servers struct {
	cp     *controlplane.Cluster
	mirror *exec.Cmd
	ended  chan struct{} // once the mirror has
	dir    string
	log    bytes.Buffer
}

// launch starts a kube-apiserver; fill puts into it what is to be read; then a
// mirror of it is started, of the resources named.
func launch(ctx context.Context, fill func(*rest.Config) error, resources ...string) (*servers, error) {
	cp, err := controlplane.Launch(ctx)
	if err != nil {
		return nil, err
	}
	s := &servers{cp: cp}
	if err := fill(cp.AdminConfig()); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if err := s.startMirror(ctx, resources); err != nil {
		return nil, errors.Join(fmt.Errorf("start a mirror: %w\n%s", err, s.log.String()), s.stop())
	}
	return s, nil
}

// startMirror builds and starts `tidings serve`, as a user would.
func (s *servers) startMirror(ctx context.Context, resources []string) error {
	program, err := buildTidings(ctx)
	if err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "tidings-bench-"); err != nil {
		return err
	}
	args := []string{"serve", "--kubeconfig", s.cp.Kubeconfig(controlplane.Admin), "--authentication", "upstream",
		"--listen", "127.0.0.1:0", "--write-kubeconfig", s.mirrorConfig(), "--write-kubeconfig-users", "--max-watches-per-caller", "10000"}
	for _, r := range resources {
		args = append(args, "--resource", r)
	}
	s.mirror = exec.Command(program, args...)
	s.mirror.Stdout, s.mirror.Stderr = &s.log, &s.log
	s.mirror.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the process ends with the thread that has started it
		started <- s.mirror.Start()
		_ = s.mirror.Wait()
		close(s.ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	return await(ctx, 2*time.Minute, func() error {
		select {
		case <-s.ended:
			return errEnded
		default:
		}
		c, err := newClient(ctx, s.mirrorConfig())
		if err != nil {
			return err
		}
		defer c.close()
		_, err = c.get("/readyz", nil, nil)
		return err
	})
}

var errEnded = errors.New("the process has ended")

// buildTidings builds the program as it is, unless it has been.
func buildTidings(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, "tidings", "bench", "tidings")
	build := exec.CommandContext(ctx, "go", "build", "-C", "../..", "-o", program, "./cmd/tidings")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tidings: %w\n%s", err, out)
	}
	return program, nil
}

func (s *servers) mirrorConfig() string { return filepath.Join(s.dir, "kubeconfig") }

func (s *servers) stop() error {
	var errs []error
	if s.ended != nil {
		_ = s.mirror.Process.Kill()
		<-s.ended
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(append(errs, s.cp.Stop())...)
}

// env is what a process that asks the servers needs to know.
func (s *servers) env() []string {
	return []string{
		"SERVED_UPSTREAM=" + s.cp.Kubeconfig(controlplane.Admin), "SERVED_MIRROR=" + s.mirrorConfig(),
		fmt.Sprintf("SERVED_PIDS=%d %d %d", s.cp.PID("kube-apiserver"), s.cp.PID("etcd"), s.mirror.Process.Pid),
	}
}

// await tries something until it goes well.
func await(ctx context.Context, patience time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// asked is one of the servers, for those who ask it.
type asked struct {
	config string
	pid    int
	behind []int // whom it asks in turn
}

// askedOf reads what env says.
func askedOf(mirror bool) (asked, error) {
	var api, etcd, tidings int
	if _, err := fmt.Sscan(os.Getenv("SERVED_PIDS"), &api, &etcd, &tidings); err != nil {
		return asked{}, fmt.Errorf("SERVED_PIDS: %w", err)
	}
	if mirror {
		return asked{os.Getenv("SERVED_MIRROR"), tidings, []int{api, etcd}}, nil
	}
	return asked{os.Getenv("SERVED_UPSTREAM"), api, []int{etcd}}, nil
}

// asking are the sides of a line that asks both servers the same.
func asking(ask func(ctx context.Context, c asked, size int) (figures, error)) []side {
	of := func(mirror bool) func(context.Context, int) (figures, error) {
		return func(ctx context.Context, size int) (figures, error) {
			c, err := askedOf(mirror)
			if err != nil {
				return nil, err
			}
			return ask(ctx, c, size)
		}
	}
	return []side{{"kube-apiserver", of(false)}, {"tidings", of(true)}}
}

// spent is the CPU time of the server and of those behind it, in seconds.
func (c asked) spent() (own, behind float64) {
	for _, pid := range c.behind {
		behind += cpuOf(pid)
	}
	return cpuOf(c.pid), behind
}

// cpuOf is the time a process has been computing for, in seconds.
func cpuOf(pid int) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	stat, err := process.Stat()
	if err != nil {
		return 0
	}
	return stat.CPUTime()
}

// rssOf is the memory of a process, in KB.
func rssOf(pid int) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0
	}
	return float64(status.VmRSS) / 1024
}

// peakRSSOf is the most memory that a process has had, in MB.
func peakRSSOf(pid int) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0
	}
	return float64(status.VmHWM) / (1 << 20)
}

// client makes one request after the other over a connection of its own, with
// HTTP/1.1 over TLS. It does little, so that what is measured is the server, and
// leaves answers compressed: they cost the same to read, whoever has sent them.
type client struct {
	config *rest.Config
	conn   net.Conn
	in     *bufio.Reader
	buffer []byte
}

var configs sync.Map // of *rest.Config, by their files

func newClient(ctx context.Context, kubeconfig string) (*client, error) {
	known, ok := configs.Load(kubeconfig)
	if !ok {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, err
		}
		known, _ = configs.LoadOrStore(kubeconfig, config)
	}
	config := known.(*rest.Config)
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	secure.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: secure}).DialContext(ctx, "tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, err
	}
	return &client{config, conn, bufio.NewReaderSize(conn, 16<<10), make([]byte, 64<<10)}, nil
}

func (c *client) close() { _ = c.conn.Close() }

// open makes a request and hands its answer over to be read.
func (c *client) open(path string, header http.Header) (io.ReadCloser, error) {
	request := append(make([]byte, 0, 1024), "GET "...)
	request = append(append(request, path...), " HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAuthorization: Bearer "...)
	request = append(append(request, c.config.BearerToken...), "\r\n"...)
	for name, values := range header {
		request = fmt.Appendf(request, "%s: %s\r\n", name, values[0])
	}
	if _, err := c.conn.Write(append(request, "\r\n"...)); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, said)
	}
	return resp.Body, nil
}

// get reads an answer, and keeps it if there is somewhere to.
func (c *client) get(path string, header http.Header, keep *bytes.Buffer) (int64, error) {
	body, err := c.open(path, header)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	var n int64
	for {
		m, err := body.Read(c.buffer)
		n += int64(m)
		if keep != nil {
			keep.Write(c.buffer[:m])
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
	}
}
