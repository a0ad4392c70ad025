//go:build unix

package page_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// Measure prints what an open table of 10,000 pods costs, of which 200 a second change, and
// how long after the API server has accepted a change it is on the screen. MEASURE is how
// long a tab is open, as in MEASURE=1m. Before that nobody looks for a while, and after it
// there are 100 windows more. PROFILE names a file for the CPU profile of the server.
func TestMeasureChurn(t *testing.T) {
	each, err := time.ParseDuration(os.Getenv("MEASURE"))
	if err != nil {
		t.Skip("MEASURE is no duration")
	}
	short := min(each, 40*time.Second)
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
	config, stop, err := fakeapi.Serve(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, config.Host)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startProcess(t, kubeconfig, "--resource", "pods", "--resource", "*")

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
	// churn changes pods for a duration, and returns what the server used meanwhile. The
	// restarts of the probe are the times of its changes, in milliseconds since begun.
	churn := func(begun time.Time, d time.Duration, minutely func(minute int)) (percent, heap float64) {
		spent, from := s.metric("process_cpu_seconds_total"), time.Now()
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		rng := rand.New(rand.NewPCG(1, 2))
		count := int(d.Seconds() * perSecond)
		for i := range count {
			<-tick.C
			if i%50 == 0 {
				restarts("0", "probe", int32(time.Since(begun).Milliseconds()))
			}
			pod := names[rng.IntN(len(names))]
			restarts(pod.Namespace, pod.Name, int32(i))
			if (i+1)%(60*perSecond) == 0 || i == count-1 {
				minutely((i + 1) / (60 * perSecond))
			}
		}
		percent = 100 * (s.metric("process_cpu_seconds_total") - spent) / time.Since(from).Seconds()
		return percent, s.usage().heap
	}

	churn(time.Now(), 15*time.Second, func(int) {}) // what the first list has left behind is collected
	fmt.Printf("load of the machine: %s\n", loadOfMachine())
	without, heapWithout := churn(time.Now(), short, func(int) {})
	fmt.Printf("without a tab: server %.2f %% of a core, heap %.2f MB\n", without, heapWithout)

	requests := record(c)
	p := visit(t, s.served, "#/pods")
	long, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 3*each+5*time.Minute)
	t.Cleanup(cancel)
	p.ctx = long
	p.awaitText(".fresh.good", "live")
	p.await("the probe is shown", "document.querySelector('tbody tr:not(.space)')?.innerText.includes('probe')")
	begun := time.Now()
	evaluate[bool](p, fmt.Sprintf(`(() => {
		const begun = %d;
		window.delays = []; window.tasks = []; let last = "";
		new PerformanceObserver((list) => list.getEntries().forEach((e) => window.tasks.push(e.duration))).observe({ type: "longtask" });
		const look = () => {
			const cell = document.querySelector("tbody tr:not(.space)")?.cells[4]?.textContent;
			if (cell && cell !== last && +cell > 0) window.delays.push(Date.now() - begun - +cell);
			last = cell;
		};
		new MutationObserver(() => requestAnimationFrame(look)).observe(document.querySelector("tbody"), { subtree: true, childList: true, characterData: true });
		return true;
	})()`, begun.UnixMilli()))
	var looking sync.WaitGroup
	looking.Go(func() { s.profile(short - time.Second) })
	before := p.usage()
	var delays, tasks []float64
	minutely := func(minute int) {
		looking.Go(func() { // the changes go on
			some, long := evaluate[[]float64](p, "window.delays.splice(0)"), evaluate[[]float64](p, "window.tasks.splice(0)")
			now := p.usage()
			slices.Sort(some)
			if len(some) > 0 {
				fmt.Printf("minute %d: on the screen after p50 %.0f ms, p99 %.0f ms, at most %.0f ms of %d; JS heap %.2f MB, %.0f nodes, %s; tasks over 50 ms: %.0f; load %s\n",
					minute, some[len(some)/2], some[len(some)*99/100], some[len(some)-1], len(some), now.heap, now.nodes, now.since(before), long, loadOfMachine())
			}
			before = now
			delays, tasks = append(delays, some...), append(tasks, long...)
		})
	}
	with, heapWith := churn(begun, each, minutely)
	looking.Wait()
	if slices.Sort(delays); len(delays) == 0 {
		t.Fatal("no change of the probe has been seen")
	}
	fmt.Printf("on the screen after: p50 %.0f ms, p99 %.0f ms of %d; tasks over 50 ms: %.0f\n", delays[len(delays)/2], delays[len(delays)*99/100], len(delays), tasks)
	fmt.Printf("elements: %.0f; requests to the API server since the tab was opened, without watches and checks of the connection: %s\n",
		evaluate[float64](p, "document.querySelectorAll('*').length"), strings.Join(requests.take(), ", "))
	fmt.Printf("with a tab: server %.2f %% of a core, %.2f more; heap %.2f MB, %.2f more\n", with, with-without, heapWith, heapWith-heapWithout)

	var open sync.WaitGroup
	reading, end := context.WithCancel(t.Context())
	for i := range 100 {
		open.Go(func() { readWindow(reading, "http://"+s.address+fmt.Sprintf("/pods?window=true&first=%d&count=60", i)) })
	}
	many, heapMany := churn(time.Now(), short, func(int) {})
	end()
	open.Wait()
	fmt.Printf("with 100 windows more: server %.2f %% of a core, %.1f times one; heap %.2f MB, %.3f for each\n", many, (many-without)/(with-without), heapMany, (heapMany-heapWith)/100)
	p.do(chromedp.Navigate("about:blank"))
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
