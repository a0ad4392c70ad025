//go:build unix

package page_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// On a real API server, three users see what they may read, and nothing else.
func TestThreeUsersOfARealAPIServer(t *testing.T) {
	cp := controlplane.Start(t)
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	options := withHistory(t)
	options.Gate = gate
	s := serve(t, cp.AdminConfig(), options)
	core, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
	for namespace, name := range map[string]string{controlplane.Namespace: "mine", "other": "canary"} {
		pod.Name = name
		if _, err := core.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	as := func(token string) *tab {
		p := visit(t, s, "#/pods", "401", "403", "410")
		p.awaitText(".token", "Who are you?")
		p.press(token, enter)
		return p
	}
	names := func(want string) string {
		return "[...document.querySelectorAll('tbody tr:not(.space)')].map((r) => r.cells[1].innerText).join() === '" + want + "'"
	}

	admin := as("admin-token")
	admin.await("all pods are shown", names("canary,mine"))
	admin.press("j", enter, "h")
	admin.awaitText(".lanes", "Pod mine")
	mine, err := core.CoreV1().Pods(controlplane.Namespace).Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mine.Labels = map[string]string{"tier": "web"}
	if _, err := core.CoreV1().Pods(controlplane.Namespace).Update(t.Context(), mine, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	admin.awaitText(".changes", ".metadata.labels")
	then := instant()
	mine, err = core.CoreV1().Pods(controlplane.Namespace).Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mine.Labels["tier"] = "later"
	if _, err := core.CoreV1().Pods(controlplane.Namespace).Update(t.Context(), mine, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	admin.awaitText(".changes", ".metadata.labels.tier web → later")
	evaluate[string](admin, "location.hash = '#/pods?at="+then+"'")
	admin.awaitText(".fresh.wait", "past")
	admin.await("all pods are shown", names("canary,mine"))
	admin.press("j", enter)
	admin.awaitText(".object", "tier web")
	admin.press(escape, "x")
	admin.awaitText(".around", ".metadata.labels.tier web → later")
	admin.press(escape, escape)

	team := as("namespaced-user-token")
	team.awaitText(".summary", "only what you may read: namespace "+controlplane.Namespace)
	team.await("the pod of the team is shown, and no other", names("mine"))
	team.press(enter)
	team.awaitText(".object", "app:1")
	team.press(escape, ":")
	team.press("pods /other", enter)
	team.awaitText(".trouble", "Not permitted.")
	team.press(":")
	team.press("pods /other,"+controlplane.Namespace, enter)
	team.await("the pod of the team is shown, and no other", names("mine"))
	team.await("what is not permitted is said", "document.querySelector('.summary').innerText.includes('other')")
	team.press(":")
	team.press("nodes", enter)
	team.awaitText(".trouble", "Not permitted.")
	// The namespace of the team has just been created: the rights in it say nothing about the
	// time before, and a minute more. See TestThePastUnderRightsOfNow for one that is older.
	namespace, err := core.CoreV1().Namespaces().Get(t.Context(), controlplane.Namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created := namespace.CreationTimestamp.UTC().Format("2006-01-02T15:04:05.000Z")
	for _, view := range []string{"#/pods?namespace=" + controlplane.Namespace + "&at=" + created, "#/pods?namespace=other&at=" + then} {
		evaluate[string](team, "location.hash = '"+view+"'")
		team.awaitText(".trouble", "Not permitted.")
	}
	for view, part := range map[string]string{"object=" + controlplane.Namespace + "/mine&view=timeline": ".object .bad", "around=10": ".around .bad"} {
		evaluate[string](team, "location.hash = '#/pods?namespace="+controlplane.Namespace+"&"+view+"'")
		team.awaitText(part, "Not permitted.")
		team.awaitText(part, "younger than")
	}
	team.await("nothing else has come", "!document.documentElement.innerHTML.includes('canary')")

	nobody := as("nobody-token")
	nobody.awaitText(".empty", "Not permitted")
	for view, part := range map[string]string{"at=" + then: ".trouble", "object=other/canary&view=timeline": ".object .bad", "around=10": ".around .bad"} {
		evaluate[string](nobody, "location.hash = '#/pods?namespace=other&"+view+"'")
		nobody.awaitText(part, "Not permitted.")
	}
}
