package page_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// putCrashing puts a pod of the ReplicaSet web-1 whose container fails.
func putCrashing(tb testing.TB, c *fakeapi.Cluster, name string) {
	putPod(tb, c, "shop", name, corev1.PodRunning, func(p *corev1.Pod) {
		p.UID, p.OwnerReferences, p.Labels = types.UID("uid-"+name), owned("web-1", "ReplicaSet"), map[string]string{"app": "web"}
		p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		p.Spec.NodeName = "worker"
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}}}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off \u202e40s"}}}}
	})
}

// The tree of an object has its owners, what it owns and its neighbours, with what is
// wrong; it follows changes, and its objects can be opened with the keyboard.
func TestTheTreeOfAnObject(t *testing.T) {
	s, c := startEmpty(t)
	putWorkload(t, c, 2)
	putCrashing(t, c, "web-1-a")
	put(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	put(t, c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}})
	p := visit(t, s, "#/deployments?object=shop/web")
	p.awaitText(".object h2", "Deployment web in shop")
	p.press("r")
	p.awaitText(".object .relatives", "Pod web-1-a")
	p.awaitText(".object .command", "tidings tree deployments web -n shop --neighbours --server http://")
	names := func(list int) []string {
		return evaluate[[]string](p, fmt.Sprintf("[...document.querySelectorAll('.relatives')[%d].querySelectorAll('.name')].map((e) => e.innerText)", list))
	}
	if got, want := fmt.Sprint(names(0)), "[Deployment web ReplicaSet web-1 Pod web-1-a]"; got != want {
		t.Errorf("the tree is %s, not %s", got, want)
	}
	p.awaitText(".cause", `Pod web-1-a: ConfigMap "absent" does not exist spec.volumes[].configMap`)
	p.awaitText(".relatives li:nth-child(3)", `! container app: CrashLoopBackOff: back-off \u202e40s`)
	p.awaitText(".relatives[aria-label=neighbours]", "ConfigMap absent missing Pod/web-1-a uses it")
	p.awaitText(".relatives[aria-label=neighbours]", "Service front")
	p.await("what is missing cannot be opened", "![...document.querySelectorAll('.relatives button.name')].some((e) => e.innerText.includes('absent'))")

	putCrashing(t, c, "web-1-b") // it is drawn again by itself
	p.awaitText(".relatives", "Pod web-1-b")
	if err := c.Delete(podResource, "shop", "web-1-a"); err != nil {
		t.Fatal(err)
	}
	p.await("what was deleted is gone", "!document.querySelector('.relatives').innerText.includes('web-1-a')")

	p.await("the open object is the current one", "document.querySelector('.relatives [aria-current]').innerText.includes('Deployment')")
	p.press("j", "j", "j", "k")
	p.await("the pod is the current one", "document.querySelector('.relatives [aria-current]').innerText.includes('Pod web-1-b')")
	putCrashing(t, c, "web-1-aa") // above the current one
	p.awaitText(".relatives", "Pod web-1-aa")
	p.await("the pod is still the current one", "document.querySelector('.relatives [aria-current]').innerText.includes('Pod web-1-b')")
	if err := c.Delete(podResource, "shop", "web-1-aa"); err != nil {
		t.Fatal(err)
	}
	// What another object has is never shown as what this one has.
	evaluate[bool](p, `(() => {
		window.wrong = [];
		new MutationObserver(() => {
			const [of, self] = [".object h2", ".relatives .self .name"].map((s) => document.querySelector(s)?.innerText ?? "");
			if (of && self && !of.startsWith(self)) window.wrong.push(of + ": " + self);
		}).observe(document, { subtree: true, childList: true, characterData: true });
		return true;
	})()`)
	p.press(enter)
	p.awaitText(".object h2", "Pod web-1-b in shop")
	p.press("r")
	p.await("the pod is the open one", "document.querySelector('.relatives .self')?.innerText.includes('Pod web-1-b')")
	if wrong := evaluate[[]string](p, "window.wrong"); len(wrong) > 0 {
		t.Errorf("the tree of another object is shown: %q", wrong)
	}
	p.await("its owners are above it", "[...document.querySelectorAll('.relatives')[0].querySelectorAll('.name')].map((e) => e.innerText).join() === 'Deployment web,ReplicaSet web-1,Pod web-1-b'")
	p.press("G")
	p.await("the last neighbour is the current one", "document.querySelector('.relatives:last-of-type li:last-child').hasAttribute('aria-current')")
	if wide := evaluate[bool](p, "document.querySelector('.object .scroll').scrollWidth > document.querySelector('.object .scroll').clientWidth"); wide {
		t.Error("the tree is wider than its place")
	}
}

// What is left out is counted, and a tree of the past is that of the moment.
func TestTreesOfThePastAndLargeOnes(t *testing.T) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	s := serve(t, config, withHistory(t))
	putWorkload(t, c, 1)
	for i := range 260 {
		put(t, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("part-%03d", i), OwnerReferences: owned("web-1", "ReplicaSet")}})
	}
	p := visit(t, s, "#/deployments?object=shop/web&view=tree", "404 (Not Found)") // of the pod, once it is gone
	p.awaitText(".relatives li:last-child", "… 12 more")
	putCrashing(t, c, "web-1-a")
	p.await("the pod comes before what is left out", "document.querySelector('.relatives').innerText.includes('web-1-a') || document.querySelector('.relatives li:last-child').innerText.includes('13 more')")
	recorded(t, s, "/pods?at=-1ms", `"web-1-a"`)
	then := time.Now()
	evaluate[string](p, "location.hash = '#/pods?object=shop/web-1-a'")
	p.awaitText(".object h2", "Pod web-1-a")
	if err := c.Delete(podResource, "shop", "web-1-a"); err != nil {
		t.Fatal(err)
	}
	p.awaitText(".object .bad", "It was deleted.")
	evaluate[string](p, fmt.Sprintf("location.hash = '#/pods?object=shop/web-1-a&view=tree&at=%s'", then.UTC().Format(time.RFC3339Nano)))
	p.awaitText(".object .past", "Past.")
	p.awaitText(".relatives", "Pod web-1-a")
	p.awaitText(".relatives", "ReplicaSet web-1")
	evaluate[string](p, "location.hash = '#/pods?object=shop/web-1-a&view=tree'")
	p.awaitText(".object .bad", "There is no such object.")
}
