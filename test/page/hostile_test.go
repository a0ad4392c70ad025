package page_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// What is in a cluster is shown as text, whatever it is.
func TestHostileContent(t *testing.T) {
	const script = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	s, c := startEmpty(t)
	putPod(t, c, "shop", "web", corev1.PodFailed, func(p *corev1.Pod) {
		p.Status.Reason = script
		p.Annotations = map[string]string{"note": script + "\u202egpj.exe", "long": strings.Repeat("x", 1<<20), "javascript:alert(1)": "\x1b[31mred"}
		p.Labels = map[string]string{"__proto__": "x", "constructor": "y"}
		p.Spec.NodeName = `"><svg onload=alert(1)>`
		p.CreationTimestamp = metav1.Time{}
	})
	p := visit(t, s, "#/pods?filter=%3Cimg&wide", "404", "400")
	p.await("the status is shown as text", `document.querySelector("td.bad")?.innerText.startsWith("<img src=x")`)
	p.press(enter, "y")
	p.awaitText(".object pre", "onerror=")
	p.awaitText(".object pre", `\u202egpj.exe`)
	p.awaitText(".object pre", "__proto__: x")
	p.press(escape)
	p.press(":")
	p.press("<script>alert(1)</script>", enter)
	p.awaitText(".prompt .bad", "<script>alert(1)</script> is not the name of a resource")
	p.press(escape)
	evaluate[string](p, `location.hash = "#/%3Cimg%20src=x%20onerror=alert(1)%3E?sort=%3Cb%3E&object=%3Cb%3E/%3Ci%3E"`)
	p.awaitText(".trouble", "<img src=x onerror=alert(1)>")
	title := evaluate[string](p, "document.title")
	elements := evaluate[int](p, `document.querySelectorAll("img, svg, script:not([src]), b:not(.summary b), i").length`)
	if strings.Contains(title, "owned") || elements > 0 {
		t.Errorf("something in the cluster became a part of the page: %q, %d elements", title, elements)
	}
}

// What is in an object is shown as text in its views, whatever it is and however long.
func TestHostileObject(t *testing.T) {
	const script = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	s := serve(t, config, withHistory(t))
	long := strings.Repeat("y", 1<<20)
	hostile := func(note string) {
		putPod(t, c, "shop", "web", corev1.PodRunning, func(p *corev1.Pod) {
			p.Annotations = map[string]string{"note": script + "\u202egpj.exe " + note, "long": long + note, script: note}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "../../x?y", Kind: script, Name: "\u202eowner", UID: "u"}}
			p.Status.Message = script
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodConditionType(script), Status: "False", Message: script + long}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: script, Message: script}}}}
		})
	}
	hostile("one")
	putEvent(t, c, "shop", "web", "Reason", script+long, 0)
	p := visit(t, s, "#/pods?object=shop/web", "410", "404", "400")
	for _, part := range []string{".conditions", ".containers", ".events", ".owners", ".facts"} {
		p.awaitText(".object "+part, map[bool]string{true: "\\u202eowner", false: "<img src=x"}[part == ".owners"])
	}
	p.press("h")
	p.awaitText(".lanes", "Pod web")
	p.await("the history is known", "!document.querySelector('.object .scroll').innerText.includes('loading')")
	hostile("two")
	p.awaitText(".changes", `\u202egpj.exe one`)
	p.awaitText(".changes", "(1048579 characters)")
	p.press("=")
	evaluate[string](p, `location.hash = "#/pods?object=shop/web&view=compare&from=%3Cimg%20src=x%3E&with=%3Cb%3E/%3Ci%3E"`)
	p.awaitText(".object .bad", "<img src=x>")
	evaluate[string](p, `location.hash = "#/pods?object=shop/web&view=yaml&version=%3Cimg%3E"`)
	p.awaitText(".past", "Version <img>")
	p.awaitText(".object .bad", "not a moment")
	evaluate[string](p, `location.hash = "#/pods?object=shop/web"`)
	p.awaitText(".object .owners", "owner")
	evaluate[bool](p, "document.querySelector('.owners button').click() ?? true")
	p.awaitText(".trouble", "<img src=x")
	title := evaluate[string](p, "document.title")
	elements := evaluate[int](p, `document.querySelectorAll("img, script:not([src]), .object b b, .object i").length`)
	if strings.Contains(title, "owned") || elements > 0 {
		t.Errorf("something in the cluster became a part of the page: %q, %d elements", title, elements)
	}
}
