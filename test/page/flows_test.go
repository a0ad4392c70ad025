package page_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A pod that crashes is found from the start page without a mouse: which, why, and since when.
func TestFindACrashingPodByKeys(t *testing.T) {
	c := demo.New(demo.Workload{Seed: 1}, fakeapi.Options{}) // which does not run: it would restart the pod
	config, stop := fakeapi.InProcess(c.Cluster)
	t.Cleanup(stop)
	s := serve(t, config, withHistory(t))
	putPod(t, c.Cluster, "shop", "till-0", corev1.PodRunning, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: "False", Reason: "ContainersNotReady"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "app", Image: "app:1", RestartCount: 7, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: "no money in the till", FinishedAt: metav1.Now()}},
		}}
	})
	putEvent(t, c.Cluster, "shop", "till-0", "BackOff", "Back-off restarting failed container", time.Minute)
	p := visit(t, s, "", "410")
	p.awaitText(".summary", "CrashLoopBackOff")
	p.press("/")
	p.press("crashloop till", enter)
	p.await("only that pod is shown", "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[1].innerText).join() === 'till-0'")
	p.press("j", enter)
	p.awaitText(".object .containers", "CrashLoopBackOff not ready 7 restarts")
	p.awaitText(".object .containers", "Error, exit 3 no money in the till")
	p.awaitText(".object .conditions", "Ready False ContainersNotReady")
	p.awaitText(".object .events", "BackOff")
	p.press("h")
	p.awaitText(".lanes", "Pod till-0")
	p.press(escape, escape)
	p.await("the start page is back", "!document.querySelector('.object') && !location.hash.includes('filter')")
}

// A rollout is followed as it happens: in the table, at a glance, and in the lanes of what the
// deployment owns.
func TestFollowARollout(t *testing.T) {
	s, c := startDemo(t, demo.Workload{Seed: 1})
	p := visit(t, s, "#/deployments?namespace=shop&wide", "410")
	p.await("the deployment is shown", "document.querySelector('tbody')?.innerText.includes('frontend')")
	p.press("/")
	p.press("frontend", enter)
	p.await("only that is shown", "document.querySelectorAll('tbody tr:not(.space)').length === 1")
	p.press(enter, "h")
	p.awaitText(".lanes", "ReplicaSet frontend-")
	p.await("the history of all that it owns has begun", "!/loading|not shown/.test(document.querySelector('.object .scroll').innerText)")
	sets := "[...document.querySelectorAll('.lanes li')].filter((l) => l.innerText.includes('ReplicaSet'))"
	before := evaluate[int](p, sets+".length")
	rollOut(t, s, c)
	p.awaitText(".changes", "-canary")
	p.await("the table has it", "document.querySelector('tbody').innerText.includes('-canary')")
	p.await("the new set has a lane", sets+".length === "+string(rune('0'+before+1)))
	p.await("it was created before our eyes", sets+".some((l) => l.querySelector('.added'))")
	p.await("so were pods", "[...document.querySelectorAll('.lanes li')].some((l) => l.innerText.includes('Pod') && l.querySelector('.added'))")
	p.press("a")
	p.await("what it owns is in the list", "/ReplicaSet frontend-[^]*(created|changed)|(created|changed)[^]*ReplicaSet frontend-/.test(document.querySelector('.changes').innerText)")
	p.press("d")
	p.awaitText(".object .scroll", "updatedReplicas")
}
