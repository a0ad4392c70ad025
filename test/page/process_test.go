//go:build unix

package page_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// process is `tidings serve` in a process of its own, as users run it.
type process struct {
	*served
	profiles string // its URL
}

// startProcess builds and starts `tidings serve` for the cluster of a kubeconfig.
func startProcess(tb testing.TB, kubeconfig string, args ...string) *process {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "tidings")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/tidings").CombinedOutput(); err != nil {
		tb.Fatalf("build tidings: %v\n%s", err, out)
	}
	p := &process{served: &served{TB: tb, address: freeAddress(tb)}, profiles: freeAddress(tb)}
	log, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"serve", "--kubeconfig", kubeconfig, "--listen", p.address, "--pprof", p.profiles}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			content, _ := os.ReadFile(log.Name())
			tb.Errorf("tidings serve: %v\n%s", err, content)
		}
		_ = log.Close()
	})
	until := time.Now().Add(time.Minute)
	for {
		resp, err := http.Get("http://" + p.address + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p
			}
		}
		if time.Now().After(until) {
			content, _ := os.ReadFile(log.Name())
			tb.Fatalf("tidings serve is not ready: %v\n%s", err, content)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// freeAddress is an address on which nothing listens.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// usage is what a process has used.
type usage struct {
	cpu          float64 // in seconds, since it began
	heap, memory float64 // in MB: live after a garbage collection; resident
}

func (p *process) usage() usage {
	p.Helper()
	u := usage{cpu: p.metric("process_cpu_seconds_total"), memory: p.metric("process_resident_memory_bytes") / (1 << 20)}
	resp, err := http.Get("http://" + p.profiles + "/debug/pprof/heap?gc=1")
	if err != nil {
		p.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	u.heap = p.metric("go_memstats_heap_alloc_bytes") / (1 << 20)
	return u
}

// metric is the value of a metric without labels.
func (p *process) metric(name string) (value float64) {
	p.Helper()
	resp, err := http.Get("http://" + p.address + "/metrics")
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), name+" "); found {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				p.Fatal(err)
			}
			return value
		}
	}
	p.Fatalf("there is no metric %s", name)
	return 0
}

// profile writes the CPU profile of the next seconds to the file that PROFILE names.
func (p *process) profile(d time.Duration) {
	name := os.Getenv("PROFILE")
	if name == "" {
		return
	}
	p.Helper()
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.profiles, int(d.Seconds())))
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil {
		err = os.WriteFile(name, content, 0o644)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// tabUsage is what a tab has used.
type tabUsage struct {
	heap  float64    // of JavaScript, in MB, after a garbage collection
	busy  float64    // the main thread, in seconds; of these:
	parts [3]float64 // scripts, styles, layout
	nodes float64    // of the DOM
}

func (t *tab) usage() (u tabUsage) {
	t.Helper()
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdp.Call(ctx, target, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}); err != nil {
			return err
		}
		if _, err := cdp.Call(ctx, target, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return err
		}
		got, err := cdp.Call(ctx, target, performance.GetMetrics, cdp.Empty{})
		if err != nil {
			return err
		}
		for _, m := range got.Metrics {
			switch m.Name {
			case "JSHeapUsedSize":
				u.heap = m.Value / (1 << 20)
			case "TaskDuration":
				u.busy = m.Value
			case "ScriptDuration":
				u.parts[0] = m.Value
			case "RecalcStyleDuration":
				u.parts[1] = m.Value
			case "LayoutDuration":
				u.parts[2] = m.Value
			case "Nodes":
				u.nodes = m.Value
			}
		}
		return nil
	}))
	return u
}

// since says how long the main thread was busy after an earlier usage.
func (u tabUsage) since(before tabUsage) string {
	return fmt.Sprintf("main thread busy for %.2f s (scripts %.2f, styles %.2f, layout %.2f)", u.busy-before.busy, u.parts[0]-before.parts[0], u.parts[1]-before.parts[1], u.parts[2]-before.parts[2])
}

func loadOfMachine() string {
	load, _ := os.ReadFile("/proc/loadavg")
	return strings.TrimSpace(string(load))
}
