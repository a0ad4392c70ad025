package page_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func put(tb testing.TB, c *fakeapi.Cluster, o fakeapi.Object) {
	tb.Helper()
	if _, err := c.Put(o); err != nil {
		tb.Fatal(err)
	}
}

func putEvent(tb testing.TB, c *fakeapi.Cluster, namespace, pod, reason, message string, ago time.Duration) {
	tb.Helper()
	at := metav1.NewTime(time.Now().Add(-ago))
	put(tb, c, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod + "." + strings.ToLower(reason)}, Type: "Warning", Reason: reason, Message: message,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod}, FirstTimestamp: at, LastTimestamp: at, Count: 3,
	})
}

func owned(by, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: by, UID: types.UID("uid-" + by)}}
}

// putWorkload puts a Deployment with a ReplicaSet into a cluster.
func putWorkload(tb testing.TB, c *fakeapi.Cluster, replicas int32) {
	labels := map[string]string{"app": "web"}
	spec := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
	put(tb, c, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", Labels: labels},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: spec},
	})
	put(tb, c, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-web-1", Labels: labels, OwnerReferences: owned("web", "Deployment")},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: spec},
	})
}

// A pod at a glance, as it changes: what is wrong, why, and what it belongs to.
func TestAnObjectAtAGlance(t *testing.T) {
	s, c := startEmpty(t)
	putWorkload(t, c, 1)
	crash := func(p *corev1.Pod) {
		p.UID, p.OwnerReferences = "uid-pod", owned("web-1", "ReplicaSet")
		p.Status.Conditions = []corev1.PodCondition{{Type: "Initialized", Status: "True"}, {Type: "Ready", Status: "False", Reason: "ContainersNotReady", Message: "containers with unready status: [app]"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "app", Image: "app:1", RestartCount: 4,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.Now()}},
		}}
	}
	putPod(t, c, "shop", "web-1-x", corev1.PodRunning, crash)
	putEvent(t, c, "shop", "web-1-x", "Pulled", "an older one", time.Hour)
	putEvent(t, c, "shop", "web-1-x", "BackOff", "Back-off restarting failed container", time.Minute)
	putEvent(t, c, "shop", "another", "Failed", "of another pod", time.Minute)
	p := visit(t, s, "#/pods?object=shop/web-1-x", "400")
	p.awaitText(".object h2", "Pod web-1-x in shop")
	p.awaitText(".object .facts", "CrashLoopBackOff")
	p.awaitText(".object .containers", "4 restarts")
	p.awaitText(".object .containers", "OOMKilled, exit 137")
	p.await("the bad condition is the first", "document.querySelector('.conditions li').innerText.startsWith('Ready False')")
	p.await("its events are shown, the newest first", "[...document.querySelectorAll('.events li b')].map((e) => e.innerText).join() === 'BackOff,Pulled'")
	putEvent(t, c, "shop", "web-1-x", "Killing", "just now", time.Second)
	p.awaitText(".events li:first-child", "Killing")
	putPod(t, c, "shop", "web-1-x", corev1.PodRunning, crash, func(p *corev1.Pod) {
		p.Status.Conditions[1].Status = "True"
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		p.Status.ContainerStatuses[0].Ready = true
	})
	p.awaitText(".object .containers", "Running")
	p.await("it is not bad any more", "!document.querySelector('.conditions .bad') && document.querySelector('.object .facts dd.good')")
	p.await("the owner is named", "document.querySelector('.owners button').innerText === 'ReplicaSet web-1'")
	evaluate[bool](p, "document.querySelector('.owners button').click() ?? true")
	p.awaitText(".object h2", "ReplicaSet web-1 in shop")
	p.awaitText(".object .owners", "Deployment web")
	p.await("the table is that of its resource", "location.hash.startsWith('#/replicaset.apps')")
	put(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}) // an owner that is in no namespace
	evaluate[string](p, "location.hash = '#/node?namespace=shop&object=shop/worker'")
	p.awaitText(".object h2", "Node worker")
	p.await("the table is shown, too", "document.querySelector('.summary').innerText.includes('1 node') && !document.querySelector('.trouble')")
	putPod(t, c, "shop", "gone", corev1.PodRunning)
	evaluate[string](p, "location.hash = '#/pods?object=shop/gone'")
	p.awaitText(".object h2", "Pod gone in shop") // the node has no events, either
	p.awaitText(".object .scroll", "There are none.")
	if err := c.Delete(podResource, "shop", "gone"); err != nil {
		t.Fatal(err)
	}
	p.awaitText(".object .bad", "It was deleted. This was its last state.")
}

// YAML is folded and searched without a mouse, and Secrets show no values anywhere.
func TestYAMLAndSecrets(t *testing.T) {
	s, c := startEmpty(t)
	const canary = "c2VjcmV0LWNhbmFyeQ" // in base64
	put(t, c, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "keys", Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": canary}},
		Data:       map[string][]byte{"password": []byte("secret-canary")},
	})
	putPod(t, c, "shop", "web", corev1.PodRunning, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web", "tier": "front"} })
	p := visit(t, s, "#/secrets?object=shop/keys")
	p.awaitText(".object .facts", "Data")
	p.awaitText(".object", "password ••••••")
	p.press("y")
	p.awaitText(".object pre", "password: \"••••••\"")
	p.await("the value is nowhere", "!document.documentElement.innerHTML.includes('"+canary+"')")
	evaluate[string](p, "location.hash = '#/pods?object=shop/web&view=yaml'")
	p.awaitText(".object pre", "tier: front")
	p.press("/")
	p.await("the search has the focus", "document.activeElement.closest('.search')")
	p.press("tier", enter)
	p.awaitText(".search", "1 of 1")
	p.await("the line found is the current one", "document.querySelector('pre [aria-current]').innerText.includes('tier: front')")
	p.do(keyLeft, keyLeft) // to its parent, and fold that
	p.await("the labels are folded", "!document.querySelector('.object pre').innerText.includes('tier: front') && document.querySelector('pre [aria-current]').innerText.includes('labels')")
	p.do(keyRight)
	p.awaitText(".object pre", "tier: front")
	p.press("z")
	p.await("all parts are folded", "!document.querySelector('.object pre').innerText.includes('app:1') && document.querySelectorAll('.fold[aria-expanded=false]').length >= 2")
	p.press("n")
	p.awaitText(".object pre", "tier: front")
	p.press("d")
	p.awaitText(".object .command", "kubectl describe pods web -n shop")
}

// The timeline has each change with its fields and writers, lanes for what the object
// owns, and goes on by itself. Two versions, and two objects, are compared.
func TestTimelineAndComparison(t *testing.T) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	s := serve(t, config, withHistory(t))
	putWorkload(t, c, 2)
	put(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "keys"}, Data: map[string][]byte{"password": []byte("one")}})
	putPod(t, c, "shop", "stranger", corev1.PodPending, func(p *corev1.Pod) { p.UID, p.Labels = "uid-stranger", map[string]string{"app": "web"} })
	p := visit(t, s, "#/deployments?object=shop/web&view=timeline", "403", "410")
	p.awaitText(".lanes", "Deployment web")
	p.awaitText(".lanes", "ReplicaSet web-1")
	p.await("the history of all that it owns has begun", "!/loading|not shown/.test(document.querySelector('.object .scroll').innerText)")
	putWorkload(t, c, 3)
	p.awaitText(".changes", ".spec.replicas 2 → 3")
	putPod(t, c, "shop", "web-1-x", corev1.PodPending, func(p *corev1.Pod) {
		p.UID, p.Labels, p.OwnerReferences = "uid-pod", map[string]string{"app": "web"}, owned("web-1", "ReplicaSet")
	})
	p.awaitText(".lanes", "Pod web-1-x")
	p.await("what it does not own has no lane", "!document.querySelector('.lanes').innerText.includes('stranger')")
	p.press("a")
	p.awaitText(".changes", "Pod web-1-x")
	p.press("a")
	putWorkload(t, c, 5)
	p.awaitText(".changes", ".spec.replicas 3 → 5")
	p.press("g", "x", "j", "x")
	p.awaitText(".object .fields", ".spec.replicas 3 → 5")
	p.awaitText(".object .command", "tidings diff deployments web -n shop --from ")
	p.press("h")
	p.awaitText(".changes", ".spec.replicas 2 → 3")
	p.press("j", enter)
	p.awaitText(".past", "Past.")
	p.awaitText(".object pre", "replicas: 3")
	p.press(escape)
	p.awaitText(".object pre", "replicas: 5")

	// Secrets: that they differ, not in what.
	put(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "others"}, Data: map[string][]byte{"password": []byte("canary-two")}})
	evaluate[string](p, "location.hash = '#/secrets?object=shop/keys&view=compare'")
	p.awaitText(".object h2", "Secret keys")
	evaluate[bool](p, "document.querySelector('.sides input[name=with]').focus() ?? true")
	p.press("shop/")
	put(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "third"}})
	p.await("a change is drawn meanwhile", "document.querySelector('#others option[value=\"shop/third\"]')")
	p.press("others", enter)
	p.awaitText(".object .fields", ".data.password (3 bytes) → (10 bytes)")
	p.awaitText(".object .fields", ".metadata.name keys → others")
	p.await("the view is in the URL", "location.hash.includes('with=shop')")
}

func TestWithoutAHistoryTheTimelineSaysHow(t *testing.T) {
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p := visit(t, s, "#/pods?object=shop/web&view=timeline", "400")
	p.awaitText(".object .bad", "this server keeps no history: start it with --history")
}

// An object that is deleted while the server is away is not shown as one that exists, nor is one that was deleted before.
func TestAnObjectIsDeletedWhileTheServerIsAway(t *testing.T) {
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p := visit(t, s, "#/pods?object=shop/web", away...)
	for range 2 {
		p.awaitText(".object", "app:1")
		s.stop()
		p.awaitText(".fresh.bad", "connection lost")
		p.awaitText(".object", "As of ")
		if err := c.Delete(podResource, "shop", "web"); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		s.start()
		p.awaitText(".fresh.good", "live")
		p.await("it is said", "document.querySelector('.object').innerText.includes('It was deleted.') && !document.querySelector('.object').innerText.includes('As of')")
	}
}

// A timeline that is opened as the resource is read for the first time is shown once its history has begun.
func TestATimelineBeforeItsHistory(t *testing.T) {
	s, c := startRemembering(t)
	putPod(t, c, "shop", "web", corev1.PodRunning)
	p := visit(t, s, "#/pods", "410")
	p.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			const asks = window.fetch;
			window.fetch = async (...args) => {
				if (!/changes=true/.test(args[0]) || /counts=/.test(args[0])) return asks(...args);
				window.refused ??= Date.now();
				if (Date.now() - window.refused > 1000) return asks(...args);
				return new Response('{"error": "there is no history of pods yet", "reason": "Expired"}', { status: 410 });
			};`})
		return err
	}), chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+s.address+"/#/pods?object=shop/web&view=timeline"))
	p.await("its history has not begun", "window.refused")
	p.awaitText(".lanes", "Pod web")
	p.await("it is no problem any more", "!document.querySelector('.object .bad')")
}

// What may have been missed is drawn as a gap, and the pipeline says that there was a relist.
func TestGapsAreDrawn(t *testing.T) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	s := serve(t, config, withHistory(t))
	putWorkload(t, c, 1)
	p := visit(t, s, "#/deployments?object=shop/web&view=timeline", "410", "503")
	p.awaitText(".lanes", "Deployment web")
	putWorkload(t, c, 2)
	p.awaitText(".changes", ".spec.replicas 1 → 2")
	c.SetDown(true)
	putWorkload(t, c, 3)
	putWorkload(t, c, 4)
	c.Compact() // the changes cannot be watched any more
	c.SetDown(false)
	p.awaitText(".changes .gap", "changes may be missing")
	p.awaitText(".changes", ".spec.replicas 2 → 4")
	p.await("the lane has the gap", "document.querySelector('.lanes .hole')")
	p.press("p")
	p.awaitText(".pipeline tbody tr", "1 gap")
	p.await("the relist is counted, with the last failure", "/deployments[^]*2 lists[^]*1 last failure/.test(document.querySelector('.pipeline tbody tr').innerText)")
}
