package page_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// instant returns the present moment as it stands in the URL of a view, once it is over: what
// comes next is later, also in milliseconds.
func instant() string {
	at := time.Now().UTC().Truncate(time.Millisecond).Add(time.Millisecond)
	time.Sleep(time.Until(at.Add(time.Millisecond)))
	return at.Format("2006-01-02T15:04:05.000Z")
}

// remembers waits until the history has a state of a resource, and returns a moment after
// that.
func remembers(tb testing.TB, s *served, resource string) string {
	tb.Helper()
	ask := func(query string) int {
		resp, err := http.Get("http://" + s.address + "/" + resource + "?limit=1" + query)
		if err != nil {
			tb.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	ask("") // its history begins
	for deadline := time.Now().Add(20 * time.Second); ask("&at=-1ms") != http.StatusOK; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("there is no history of ", resource)
		}
	}
	return instant()
}

// recorded waits until the answer to a read of the history has a text. The history is written a moment after the
// page shows a change, and may even note a later time for it.
func recorded(tb testing.TB, s *served, path, text string, token ...string) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://"+s.address+path, nil)
		if err != nil {
			tb.Fatal(err)
		}
		for _, t := range token {
			req.Header.Set("Authorization", "Bearer "+t)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			tb.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(body), text) {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s does not come to have %s: %s, %v\n%.2000s", path, text, resp.Status, err, body)
		}
	}
}

// An object of the past is shown at a glance as one of now is, with what it belonged to and
// its events as of then; and how far that is known.
func TestAnObjectInThePast(t *testing.T) {
	s, c := startRemembering(t)
	putWorkload(t, c, 1)
	pod := func(change func(*corev1.Pod)) {
		putPod(t, c, "shop", "web-1-x", corev1.PodRunning, func(p *corev1.Pod) {
			p.UID, p.Labels, p.OwnerReferences = "uid-pod", map[string]string{"app": "web"}, owned("web-1", "ReplicaSet")
			p.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: "False", Reason: "ContainersNotReady"}}
			change(p)
		})
	}
	crash := func(restarts int32) {
		pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "app", Image: "app:1", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.Now()}},
			}}
		})
	}
	crash(3)
	putEvent(t, c, "shop", "web-1-x", "BackOff", "Back-off restarting failed container", time.Minute)
	p := visit(t, s, "#/pods?object=shop/web-1-x", "410", "503")
	p.await("the event of now is shown", "document.querySelector('.events li b')?.innerText === 'BackOff'")
	for _, resource := range []string{"pods", "replicasets", "deployments"} {
		remembers(t, s, resource)
	}
	crash(4)
	p.awaitText(".object .containers", "4 restarts")
	remembers(t, s, "events")
	recorded(t, s, "/pods?at=-1ms", `"restartCount":4`)
	then := instant()
	pod(func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = "True"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "app:1", Ready: true, RestartCount: 5, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	})
	if err := c.Delete(corev1.SchemeGroupVersion.WithResource("events"), "shop", "web-1-x.backoff"); err != nil {
		t.Fatal(err)
	}
	putEvent(t, c, "shop", "web-1-x", "Started", "Started container", time.Second)
	p.awaitText(".object .containers", "5 restarts")
	p.await("the events of now are shown", "[...document.querySelectorAll('.events li b')].map((e) => e.innerText).join() === 'Started'")

	evaluate[string](p, "location.hash += '&at="+then+"'")
	p.awaitText(".object .past", "Past. As it was at")
	p.awaitText(".object .facts", "CrashLoopBackOff")
	p.awaitText(".object .containers", "4 restarts")
	p.awaitText(".object .containers", "OOMKilled, exit 137")
	p.awaitText(".object .conditions", "Ready False")
	p.await("the events of then are shown", "[...document.querySelectorAll('.events li b')].map((e) => e.innerText).join() === 'BackOff'")
	p.awaitText(".object .unsure", "at most one version of an object in 1µs is kept")
	p.press("h")
	p.awaitText(".changes", "4 → 5")
	p.await("the lane has the moment", "document.querySelector('.lanes .marker')")
	p.await("what was there at the moment is chosen", "document.querySelector('.changes [aria-current]')?.innerText.includes('3 → 4')")
	p.press("=")
	p.awaitText(".object .fields", "CrashLoopBackOff")
	p.awaitText(".object .command", "tidings diff pods web-1-x -n shop --from "+then)
	p.press("d")
	p.await("the owner is named", "document.querySelector('.owners button')?.innerText === 'ReplicaSet web-1'")
	evaluate[bool](p, "document.querySelector('.owners button').click() ?? true")
	p.awaitText(".object h2", "ReplicaSet web-1 in shop")
	p.awaitText(".object .past", "As it was at")
	p.await("the moment is still that", "location.hash.includes('at=')")

	c.SetDown(true)
	pod(func(*corev1.Pod) {})
	p.press(escape, escape)
	evaluate[string](p, "location.hash = '#/pods?object=shop/web-1-x'")
	p.awaitText(".fresh.bad", "stale for ")
	lost := instant()
	c.Compact()
	c.SetDown(false)
	p.awaitText(".fresh.good", "live")
	recorded(t, s, "/pods?at="+lost, `"gap":`) // the page asks once
	evaluate[string](p, "location.hash += '&at="+lost+"'")
	p.awaitText(".object .past", "The moment is in a gap, from ")
	p.awaitText(".object .containers", "5 restarts")
	evaluate[string](p, "location.hash = '#/pods?object=shop/never&at="+then+"'")
	p.awaitText(".object .bad", "It did not exist.")
}
