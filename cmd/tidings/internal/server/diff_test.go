package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

func TestDifferencesOfVersionsAndObjects(t *testing.T) {
	r := start(t, remember(t, options{mirror: mirror.Options{Resources: []string{mirror.Everything, "secrets"}}}))
	first := r.set("default", "a", "1")
	r.get("/cm") // begins the history
	r.reach("", "/cm", first)
	second := r.set("default", "a", "2")
	other := r.set("shop", "b", "3")
	secret := func(name, value string) {
		_, err := r.cluster.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{"key": []byte(value)}})
		r.must(err)
	}
	secret("s", "canary-one")
	secret("t", "canary-two-")
	r.reach("", "/cm", other)

	for path, want := range map[string]string{
		"default/a?diff=true&from=" + first:             `"path":".data.v","old":"1","new":"2"`,
		"default/a?diff=true&to=" + first:               `"path":".data.v","old":"2","new":"1"`,
		"default/a?diff=true&from=" + second:            `"data":[]`,
		"default/a?diff=true&with=shop/b":               `"path":".data.v","old":"2","new":"3"`,
		"default/a?diff=true&with=shop/b&from=" + first: `"from":{"namespace":"default","name":"a","resourceVersion":"` + first + `","moment":{`,
		"default/a?diff=true&with=shop/b&to=" + other:   `"to":{"namespace":"shop","name":"b","resourceVersion":"` + other + `","moment":{`,
		"default/a?diff=true&with=a":                    `"data":[]`,
		"default/a?diff=true&with=default/nothing":      "404",
		"default/a?diff=true&with=shop/b&to=" + first:   "404",
		"default/a?diff=true&with=/b":                   "400",
		"default/a?diff=true&with=shop/..":              "400",
		"default/a?diff=true&with=SHOP/b":               "400",
		"default/a?diff=true&from=tomorrow":             "400",
		"default/a?diff=true&at=" + first:               "400",
		"default/a?diff=true&watch=true":                "400",
		"default/a?from=" + first:                       "400",
		"default?diff=true":                             "400",
	} {
		a := r.get("/core/v1/configmaps/" + path)
		if fmt.Sprint(a.code) == want {
			continue
		}
		if a.code != http.StatusOK || !strings.Contains(string(a.body), want) || !json.Valid(a.body) {
			t.Errorf("%s: %d %s, not %s", path, a.code, a.body, want)
		}
	}
	pod := func(name string, grace int64) {
		_, err := r.cluster.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}})
		r.must(err)
	}
	pod("a", 1<<53+1)
	pod("b", 1<<53)
	a := r.get("/core/v1/pods/shop/a?diff=true&with=shop/b")
	if !strings.Contains(string(a.body), `"path":".spec.terminationGracePeriodSeconds","old":9007199254740993,"new":9007199254740992`) {
		t.Errorf("two large integers: %d %s", a.code, a.body)
	}
	a = r.get("/core/v1/secrets/shop/s?diff=true&with=shop/t")
	if a.code != http.StatusOK || strings.Contains(string(a.body), "canary") || !strings.Contains(string(a.body), `"path":".data.key","old":10,"new":11`) {
		t.Errorf("two Secrets: %d %s", a.code, a.body)
	}
}

// Changes say where their history begins, and what the objects belong to.
func TestChangesHaveTheBeginAndOwners(t *testing.T) {
	r := start(t, remember(t, options{}))
	first := r.set("default", "first", "1")
	r.get("/cm")
	r.reach("", "/cm", first)
	_, err := r.cluster.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "of-the-pod"}}}})
	r.must(err)
	r.reach("", "/cm", r.cluster.ResourceVersion())
	a := r.get("/cm?changes=true")
	for _, want := range []string{`"owners":["of-the-pod"]`, `"begin":"20`} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("the changes have no %s: %s", want, a.body)
		}
	}
}
