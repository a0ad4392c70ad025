package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A window of a moment shows what was there then, and stays so.
func TestWindowOfThePast(t *testing.T) {
	s := startSeveral(t, remember(t, options{}), "a", "b")
	for _, c := range []string{"a", "b"} {
		s.setIn(c, "default", "x")
		s.get("/clusters/" + c + "/cm") // begins the mirror and the history
	}
	s.setIn("a", "default", "y")
	s.setIn("a", "other", "z")
	s.reach("", "/clusters/a/cm", s.clusters["a"].ResourceVersion())
	s.reach("", "/clusters/b/cm", s.clusters["b"].ResourceVersion())
	then := time.Now()
	at := "&at=" + url.QueryEscape(then.UTC().Format(time.RFC3339Nano))
	s.must(s.clusters["a"].Delete(configMaps, "default", "x"))
	s.setIn("b", "default", "later")
	s.reach("", "/clusters/a/cm", s.clusters["a"].ResourceVersion())
	for path, want := range map[string][]string{
		"/clusters/a/cm?window=true":                                      {"default/y", "other/z"},
		"/clusters/a/cm?window=true" + at:                                 {"default/x", "default/y", "other/z"},
		"/clusters/a/cm?window=true&namespace=default&filter=y" + at:      {"default/y"},
		"/clusters/a/cm?window=true&namespace=other,default&count=2" + at: {"default/x", "default/y"},
		"/clusters/a/core/v1/configmaps/default/x?window=true" + at:       {"default/x"},
		"/cm?window=true&clusters=*&columns=.data.v" + at:                 {"a/default/x", "b/default/x", "a/default/y", "a/other/z"},
	} {
		f := s.eventSource(path).frame(path, keys(want...))
		if past := strings.Contains(path, "&at="); past != (f.At == then.UnixMilli()) || past && !strings.Contains(path, "clusters=") && (f.Moment == nil || f.Moment.Time.After(then)) {
			t.Errorf("%s: the moment is %d, %+v", path, f.At, f.Moment)
		}
	}
	for path, want := range map[string]int{
		"/clusters/a/cm?window=true&at=-1h": http.StatusGone, "/clusters/a/cm?window=true&at=1h": http.StatusBadRequest, "/clusters/a/secrets?window=true&at=-1s": http.StatusForbidden,
		"/clusters/a/cm?window=true&visible=true" + at: http.StatusBadRequest, "/cm?window=true&clusters=*&at=7": http.StatusBadRequest, "/cm?window=true&clusters=*&at=x": http.StatusBadRequest,
		"/cm?window=true&clusters=a,b&at=-1h": http.StatusGone,
	} {
		if a := s.get(path); a.code != want {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}

func TestCountsOfChanges(t *testing.T) {
	r := start(t, remember(t, options{}))
	counts := func(query string) (c struct {
		Data       []int
		Begin, End *time.Time
		Gaps       []any
	}) {
		a := r.get("/cm?changes=true&counts=5&since=-1m" + query)
		if a.code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, a.code, a.body)
		}
		r.must(json.Unmarshal(a.body, &c))
		return c
	}
	if c := counts(""); c.Begin != nil || len(c.Data) != 5 {
		t.Errorf("before there is a history: %+v", c)
	}
	r.set("default", "x", "0")
	r.get("/cm")
	for i := range 3 {
		r.set("default", "x", fmt.Sprint(i+1))
	}
	r.set("other", "x", "1")
	r.reach("", "/cm", r.cluster.ResourceVersion())
	if c := counts("&until=-30s"); c.Begin == nil || !slices.Equal(c.Data, []int{0, 0, 0, 0, 0}) {
		t.Errorf("long ago: %+v", c)
	}
	for query, want := range map[string]int{"": 5, "&namespace=default": 4, "&namespace=other,default": 5, "&namespace=none,other": 1} {
		sum := 0
		for _, n := range counts(query).Data {
			sum += n
		}
		if sum < want-1 || sum > want { // the first list may have the first of them
			t.Errorf("%s: %d changes, want %d", query, sum, want)
		}
	}
	version := ""
	for _, labels := range [][]string{{"app=web"}, {"app=db"}, {"app=web"}, nil} { // that it does not match any more is a change, too
		version = r.set("default", "labelled", "x", labels...)
	}
	r.reach("", "/cm", version)
	for query, want := range map[string]int{"&labels[app]=web": 4, "&labels[app]=db": 2, "&labels[app]=web&namespace=other": 0, "&fieldSelector=metadata.name%3Dlabelled": 4, "&labelSelector=app": 4} {
		sum := 0
		for _, n := range counts(query).Data {
			sum += n
		}
		if sum != want {
			t.Errorf("%s: %d changes, want %d", query, sum, want)
		}
	}
	for _, query := range []string{"counts=0", "counts=501", "counts=x", "counts=1&labelSelector=a%3Db%3Dc"} {
		if a := r.get("/cm?changes=true&" + query); a.code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, a.code)
		}
	}
	if a := r.get("/cm?counts=5"); a.code != http.StatusBadRequest {
		t.Errorf("without changes: %d", a.code)
	}
}

// The rights in each of several namespaces govern the changes in it, too.
func TestRightsOfChangesInSeveralNamespaces(t *testing.T) {
	gate, err := access.NewGate(access.Options{AllowTTL: 50 * time.Millisecond, DenyTTL: 50 * time.Millisecond, NamespaceDenyTTL: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	who := &rights{of: map[string]bool{}}
	r := startSeveral(t, remember(t, options{server: server.Options{Gate: gate}, cluster: fakeapi.Options{
		Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}, "bob-token": {Name: "bob"}}, Allow: who.allow,
	}}), "a")
	for _, name := range []string{"shop", "web"} {
		_, err := r.clusters["a"].Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-2 * time.Hour))}})
		r.must(err)
		r.setIn("a", name, "x")
	}
	r.setIn("a", "gone", "x") // there is no such namespace now
	who.grant(true, "alice", "shop", "list", "watch")
	who.grant(true, "alice", "gone", "list", "watch")
	who.grant(true, "bob", "*", "list", "watch")
	r.as("bob-token", "/cm")
	for _, n := range []string{"shop", "web", "gone"} {
		r.setIn("a", n, "y")
	}
	r.reach("bob-token", "/cm", r.clusters["a"].ResourceVersion())
	for token, want := range map[string]string{"alice-token": "y [gone web]", "bob-token": "y y y []"} {
		var a struct {
			Data    []struct{ Name string }
			Refused []string
		}
		answer := r.as(token, "/cm?changes=true&namespace=web,shop,gone&since=-1m")
		r.must(json.Unmarshal(answer.body, &a))
		got := ""
		for _, c := range a.Data {
			if c.Name == "y" {
				got += "y "
			}
		}
		if got += fmt.Sprint(a.Refused); got != want {
			t.Errorf("%s: %s, want %s (%s)", token, got, want, answer.body)
		}
	}
	if a := r.as("alice-token", "/cm?changes=true&counts=5&namespace=web,gone"); a.code != http.StatusForbidden {
		t.Errorf("counts of what may not be read: %d %s", a.code, a.body)
	}
}
