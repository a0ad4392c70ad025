//go:build unix

package page_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// kinds are those that are mirrored from the start.
var kinds = []string{
	"pods", "nodes", "namespaces", "services", "configmaps", "serviceaccounts", "persistentvolumeclaims", "endpointslices",
	"deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs", "ingresses", "events",
}

// Measure prints what `tidings serve` and a tab cost with 10,000 pods of a real API server:
// while nobody looks, with an idle tab, and twice while pods change 2,600 times a minute
// and 381 are new. MEASURE is how long each of the four takes.
func TestMeasureOfARealAPIServer(t *testing.T) {
	each, err := time.ParseDuration(os.Getenv("MEASURE"))
	if err != nil {
		t.Skip("MEASURE is no duration")
	}
	ctx := context.Background()
	const count = 10_000
	cp := controlplane.Start(t)
	pods := samplepods.Clone(count, 1)
	begun := time.Now()
	for _, err := range []error{
		samplepods.Create(ctx, cp.AdminConfig(), pods, 16),
		samplepods.WriteStatus(ctx, cp.AdminConfig(), pods, 16),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%d pods written in %.0f s; load %s\n", count, time.Since(begun).Seconds(), loadOfMachine())
	var args []string
	for _, kind := range kinds {
		args = append(args, "--resource", kind)
	}
	s := startProcess(t, cp.Kubeconfig(controlplane.Admin), args...)
	counted := &counter{to: s.address}
	s.address = counted.listen(t)
	time.Sleep(30 * time.Second)
	fmt.Printf("%d kinds mirrored and settled: %.0f MB resident; load %s\n", len(kinds), s.metric("process_resident_memory_bytes")/(1<<20), loadOfMachine())

	part := func(do func()) (cpu, mb float64) {
		cpu, bytes, from := s.metric("process_cpu_seconds_total"), counted.bytes.Load(), time.Now()
		do()
		minutes := time.Since(from).Minutes()
		mb = float64(counted.bytes.Load()-bytes) / (1 << 20) / minutes
		return (s.metric("process_cpu_seconds_total") - cpu) / minutes, mb
	}
	nobody, _ := part(func() { time.Sleep(each) })
	fmt.Printf("nobody looks: %.2f CPU s a minute\n", nobody)

	before := counted.bytes.Load()
	p := visit(t, s.served, "#/pods")
	p.await("there are rows", "document.querySelectorAll('tbody tr:not(.space)').length > 10")
	took := evaluate[float64](p, "performance.now()")
	bytes := counted.bytes.Load() - before
	fmt.Printf("a first visit: first rows after %.0f ms, %.0f KB, %.0f elements\n", took, float64(bytes)/(1<<10), evaluate[float64](p, "document.querySelectorAll('*').length"))
	long, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 9*each+5*time.Minute)
	t.Cleanup(cancel)
	p.ctx = long
	p.awaitText(".fresh.good", "live")

	was := p.usage()
	idle, mb := part(func() { time.Sleep(each) })
	is := p.usage()
	fmt.Printf("an idle tab: %.2f CPU s a minute of the server, %.2f more; %.3f MB a minute sent; JS heap %.2f MB, %s\n", idle, idle-nobody, mb, is.heap, is.since(was))

	created := map[string]time.Time{}
	for _, view := range []struct{ what, fragment string }{{"a tab", ""}, {"a tab in which each new pod moves all rows", "?sort=Age"}} {
		evaluate[string](p, "location.hash = '#/pods"+view.fragment+"'")
		p.awaitText(".fresh.good", "live")
		evaluate[bool](p, `(() => {
			window.seen = {};
			const look = () => document.querySelectorAll("tbody tr:not(.space)").forEach((r) => (window.seen[r.cells[1].textContent] ??= Date.now()));
			new MutationObserver(() => requestAnimationFrame(look)).observe(document.querySelector("tbody"), { childList: true });
			return true;
		})()`)
		was = p.usage()
		from := time.Now()
		busy, mb := part(func() { created = changePods(t, cp.AdminConfig(), pods, each, len(created)) })
		is = p.usage()
		fmt.Printf("2,600 changes a minute, %s: %.2f CPU s a minute of the server, %.2f more than if nobody looks and nothing changes; %.3f MB a minute sent; JS heap %.2f MB, %s of %.0f; load %s\n",
			view.what, busy, busy-nobody, mb, is.heap, is.since(was), time.Since(from).Seconds(), loadOfMachine())
	}
	seen := evaluate[map[string]float64](p, "window.seen")
	var delays []float64
	for name, at := range created {
		if shown := seen[name]; shown > 0 {
			delays = append(delays, shown-float64(at.UnixMilli()))
		}
	}
	slices.Sort(delays)
	if len(delays) > 0 {
		fmt.Printf("%d of %d new pods were seen, p50 %.0f ms after they were created, p99 %.0f ms\n", len(delays), len(created), delays[len(delays)/2], delays[len(delays)*99/100])
	}
	evaluate[string](p, "location.hash = '#/pods?filter=measured-'")
	p.await("the table is filtered", "document.querySelector('.summary').innerText.includes(' of ')")
	fmt.Printf("with the filter measured-: %s (created: %d and as many before)\n", strings.Join(strings.Fields(evaluate[string](p, "document.querySelector('.summary').innerText")), " "), len(created))
	fmt.Printf("at the end: %.0f MB resident, %.1f MB live\n", s.metric("process_resident_memory_bytes")/(1<<20), s.usage().heap)
	p.do(chromedp.Navigate("about:blank"))
}

// changePods changes the status of pods, and creates new ones, evenly over a time, and
// returns when the API server had accepted each new one. Their numbers begin after first.
func changePods(t *testing.T, config *rest.Config, pods []corev1.Pod, d time.Duration, first int) map[string]time.Time {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	changes, fresh := int(2600*d.Minutes()), int(381*d.Minutes())
	var mu sync.Mutex
	created := map[string]time.Time{}
	var running sync.WaitGroup
	tick := time.NewTicker(d / time.Duration(changes))
	defer tick.Stop()
	next := 0
	for i := range changes {
		<-tick.C
		create := next < fresh && i*fresh/changes >= next
		if create {
			next++
		}
		name := fmt.Sprintf("measured-%d", first+next)
		running.Go(func() {
			if create {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pods[0].Namespace, Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
				if _, err := client.CoreV1().Pods(pod.Namespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				created[name] = time.Now()
				return
			}
			pod := &pods[(i*7919)%len(pods)]
			patch := fmt.Sprintf(`{"status": {"message": "change %d"}}`, i)
			if i%2 == 0 {
				patch = fmt.Sprintf(`{"status": {"reason": "Change%d"}}`, i%5)
			}
			if _, err := client.CoreV1().Pods(pod.Namespace).Patch(context.Background(), pod.Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	return created
}

// counter passes connections on, and counts the bytes that come back.
type counter struct {
	to    string
	bytes atomic.Int64
}

func (c *counter) listen(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := net.Dial("tcp", c.to)
				if err != nil {
					return
				}
				defer to.Close()
				go func() {
					_, _ = io.Copy(to, from)
					_ = to.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(io.MultiWriter(from, c), to)
			}()
		}
	}()
	return l.Addr().String()
}

// Write counts.
func (c *counter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}
