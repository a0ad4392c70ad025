//go:build unix

package page_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// Measure prints what an open table of 10,000 pods costs, of which 200 a second change, and
// how long after the API server has accepted a change it is on the screen. MEASURE is the
// duration of each part, as in MEASURE=1m: without a browser, with a tab, and with 100
// windows more.
func TestMeasureChurn(t *testing.T) {
	each, err := time.ParseDuration(os.Getenv("MEASURE"))
	if err != nil {
		t.Skip("MEASURE is no duration")
	}
	const pods, perSecond = 10_000, 200
	c := fakeapi.New(fakeapi.Options{})
	var names []*corev1.Pod
	for pod := range samplepods.All(pods, 1) {
		pod.ResourceVersion = ""
		if _, err := c.Put(pod); err != nil {
			t.Fatal(err)
		}
		names = append(names, pod)
	}
	putPod(t, c, "0", "probe", corev1.PodRunning) // the first row
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	s := serve(t, config, server.Options{MaxWindowsPerCaller: 200})

	restarts := func(namespace, name string, n int32) {
		err := c.Modify(corev1.SchemeGroupVersion.WithResource("pods"), namespace, name, func(o fakeapi.Object) (fakeapi.Object, error) {
			pod := o.DeepCopyObject().(*corev1.Pod)
			if len(pod.Status.ContainerStatuses) == 0 {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app"}}
			}
			pod.Status.ContainerStatuses[0].RestartCount = n
			return pod, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	// churn changes pods for the duration. The restarts of the probe are the times of its
	// changes, in milliseconds since then.
	churn := func(begun time.Time) (cpu float64, heap float64) {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		spent := processTime()
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range int(each.Seconds() * perSecond) {
			<-tick.C
			if i%50 == 0 {
				restarts("0", "probe", int32(time.Since(begun).Milliseconds()))
			}
			pod := names[rng.IntN(len(names))]
			restarts(pod.Namespace, pod.Name, int32(i))
		}
		spent = processTime() - spent
		runtime.GC()
		runtime.ReadMemStats(&after)
		return spent, float64(after.HeapAlloc) / (1 << 20)
	}

	p := visit(t, s, "#/pods") // mirrors them
	p.awaitText(".fresh.good", "live")
	p.do(chromedp.Navigate("about:blank"))
	time.Sleep(6 * time.Second) // the table is not kept any more
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("load of the machine: %s", load)
	without, heapWithout := churn(time.Now())

	requests := total(c)
	long, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 4*each+time.Minute)
	t.Cleanup(cancel)
	p.ctx = long
	p.do(chromedp.Navigate("http://" + s.address + "/#/pods"))
	p.awaitText(".fresh.good", "live")
	p.await("the probe is shown", "document.querySelector('tbody tr:not(.space)')?.innerText.includes('probe')")
	begun := time.Now()
	evaluate[bool](p, fmt.Sprintf(`(() => {
		const begun = %d;
		window.delays = []; window.tasks = []; let last = "";
		new PerformanceObserver((list) => list.getEntries().forEach((e) => window.tasks.push(e.duration))).observe({ type: "longtask" });
		const look = () => {
			const cell = document.querySelector("tbody tr:not(.space)")?.cells[4]?.innerText;
			if (cell && cell !== last && +cell > 0) window.delays.push(Date.now() - begun - +cell);
			last = cell;
			requestAnimationFrame(look);
		};
		requestAnimationFrame(look);
		return true;
	})()`, begun.UnixMilli()))
	first := p.heap()
	with, heapWith := churn(begun)
	delays := evaluate[[]float64](p, "window.delays")
	slices.Sort(delays)
	tasks := evaluate[[]float64](p, "window.tasks")
	slices.Sort(tasks)
	if len(delays) == 0 {
		t.Fatal("no change of the probe has been seen")
	}
	fmt.Printf("on the screen after: p50 %.0f ms, p99 %.0f ms of %d\n", delays[len(delays)/2], delays[len(delays)*99/100], len(delays))
	fmt.Printf("JS heap: %.1f MB, then %.1f MB; elements: %.0f; tasks over 50 ms: %v\n", first, p.heap(), evaluate[float64](p, "document.querySelectorAll('*').length"), tasks)
	fmt.Printf("server, API server and mirror in one process, CPU s: %.2f without a tab, %.2f with one; heap MB: %.1f, %.1f\n", without, with, heapWithout, heapWith)
	fmt.Printf("requests to the API server since the tab was opened: %d\n", total(c)-requests)

	var open sync.WaitGroup
	reading, end := context.WithCancel(t.Context())
	for i := range 100 {
		open.Go(func() { readWindow(reading, "http://"+s.address+fmt.Sprintf("/pods?window=true&first=%d&count=60", i)) })
	}
	many, heapMany := churn(time.Now())
	end()
	open.Wait()
	fmt.Printf("with 100 windows more, which are read in the same process: CPU s %.2f, heap MB %.1f\n", many, heapMany)
}

// heap is the memory of JavaScript after a garbage collection, in MB.
func (t *tab) heap() (mb float64) {
	t.Helper()
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdp.Call(ctx, target, performance.Enable, performance.EnableParams{}); err != nil {
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
			if m.Name == "JSHeapUsedSize" {
				mb = m.Value / (1 << 20)
			}
		}
		return nil
	}))
	return mb
}

func total(c *fakeapi.Cluster) (n int) {
	for _, count := range c.Requests() {
		n += count
	}
	return n
}

// processTime is the CPU time of this process, in seconds.
func processTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// readWindow reads the frames of a window until ctx ends.
func readWindow(ctx context.Context, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}
