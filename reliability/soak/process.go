package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// BuildServer builds the command tidings into a folder, from the module's source
// or that with a [Mutant] in it, and returns its path.
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

// Process is a "tidings serve" of its own.
type Process struct {
	// URL of the server.
	URL string

	cmd    *exec.Cmd
	log    string
	ended  chan struct{}
	err    error
	client *http.Client
}

// FreeAddress is an address of the loopback interface that nobody listens on.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Serve starts a server that is built already and returns when it is ready. It
// logs to the file log. environment adds to this process' own.
func Serve(ctx context.Context, binary, address, log string, environment []string, flags ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &Process{URL: "http://" + address, log: log, ended: make(chan struct{}), client: &http.Client{Transport: &http.Transport{}}}
	p.cmd = exec.Command(binary, append([]string{"serve", "--listen", address}, flags...)...)
	p.cmd.Env = append(os.Environ(), environment...)
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
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	for !p.ready(ctx) {
		select {
		case <-p.ended:
			return nil, fmt.Errorf("the server ended: %w\n%s", p.err, p.Log())
		default:
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return nil, errors.Join(fmt.Errorf("the server does not become ready: %w\n%s", ctx.Err(), p.Log()), p.Kill())
		}
	}
	return p, nil
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

// Ended is closed when the server has ended, by itself or not.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// PID is the server's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is the end of what the server has logged.
func (p *Process) Log() string {
	b, _ := os.ReadFile(p.log)
	if len(b) > 8<<10 {
		b = b[len(b)-8<<10:]
	}
	return string(b)
}

// Usage is what a process takes at a moment.
type Usage struct {
	Heap       uint64 // bytes allocated: live, and dead since the last collection
	RSS        uint64
	Goroutines uint64
	FDs        uint64
	GCs        uint64 // collections so far
	CPU        float64
}

// Usage reads /metrics.
func (p *Process) Usage(ctx context.Context) (Usage, error) {
	m, err := p.Metrics(ctx)
	if err != nil {
		return Usage{}, err
	}
	return Usage{
		Heap: uint64(m["go_memstats_heap_alloc_bytes"]), RSS: uint64(m["process_resident_memory_bytes"]),
		Goroutines: uint64(m["go_goroutines"]), FDs: uint64(m["process_open_fds"]), GCs: uint64(m["go_gc_duration_seconds"]),
		CPU: m["process_cpu_seconds_total"],
	}, nil
}

// Metrics reads /metrics: the sum of each family, of summaries the count.
func (p *Process) Metrics(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the server's metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the server's metrics: %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bufio.NewReader(resp.Body))
	if err != nil {
		return nil, fmt.Errorf("read the server's metrics: %w", err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			sums[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue() + float64(m.GetSummary().GetSampleCount())
		}
	}
	return sums, nil
}

// meter samples what the server uses.
type meter struct {
	mu          sync.Mutex
	first, last Usage
	peak        Usage
	samples     int
}

func (m *meter) sample(u Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.samples++; m.samples == 1 {
		m.first = u
	}
	m.last = u
	m.peak = Usage{
		Heap: max(m.peak.Heap, u.Heap), RSS: max(m.peak.RSS, u.RSS), Goroutines: max(m.peak.Goroutines, u.Goroutines),
		FDs: max(m.peak.FDs, u.FDs), GCs: u.GCs, CPU: u.CPU,
	}
}
