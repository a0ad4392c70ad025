package page_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
