package server_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// remember makes the server keep a history.
func remember(tb testing.TB, o options) options {
	tb.Helper()
	store, err := history.Open("history", history.Options{InMemory: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	recording := history.NewRecording(store, history.RecordingOptions{})
	o.mirror.Journal, o.server.Reads.History = recording, recording
	return o
}

// reach waits until the history has a version.
func (r *rig) reach(token, path, version string) {
	r.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		a := r.as(token, path+"?limit=1&at="+version)
		if a.code == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("the history does not reach %s: %d %s", version, a.code, a.Error)
		}
		time.Sleep(time.Millisecond)
	}
}

// values describes a list of config maps: name=value …
func (a answer) values(tb testing.TB) string {
	tb.Helper()
	var list []struct {
		Metadata struct{ Name string }
		Data     map[string]string
	}
	if err := json.Unmarshal(a.Data, &list); err != nil {
		tb.Fatalf("%v: %d %s", err, a.code, a.body)
	}
	var out []string
	for _, o := range list {
		out = append(out, o.Metadata.Name+"="+o.Data["v"])
	}
	return strings.Join(out, " ")
}

func TestTheStateAtAMoment(t *testing.T) {
	r := start(t, remember(t, options{}))
	first := r.set("default", "a", "1")
	r.get("/cm") // begins the mirror and the history
	r.reach("", "/cm", first)
	var versions []string
	for i := range 4 {
		versions = append(versions, r.set("default", fmt.Sprint("b", i), "1", "even="+fmt.Sprint(i%2 == 0)))
	}
	versions = append(versions, r.set("default", "a", "2"))
	r.must(r.cluster.Delete(configMaps, "default", "b0"))
	last := r.cluster.ResourceVersion()
	r.reach("", "/cm", last)

	for path, want := range map[string]string{
		"/cm?at=" + first:       "a=1",
		"/cm?at=" + versions[1]: "a=1 b0=1 b1=1",
		"/cm?at=" + versions[4]: "a=2 b0=1 b1=1 b2=1 b3=1",
		"/cm?at=" + last:        "a=2 b1=1 b2=1 b3=1",
		"/core/v1/configmaps/default?labels[even]=true&at=" + versions[4]:  "b0=1 b2=1",
		"/cm?namespace=nowhere&at=" + versions[4]:                          "",
		"/cm?fieldSelector=metadata.name%3Da&at=" + versions[3]:            "a=1",
		"/cm?at=" + time.Now().Add(time.Second).UTC().Format(time.RFC3339): "",
	} {
		if a := r.get(path); a.code == http.StatusOK && a.values(t) != want || a.code != http.StatusOK && !strings.Contains(path, ":") {
			t.Errorf("%s: %d %s, not %q", path, a.code, a.body, want)
		}
	}
	var one struct{ Data map[string]string }
	a := r.get("/core/v1/configmaps/default/a?at=" + first)
	if r.must(json.Unmarshal(a.Data, &one)); one.Data["v"] != "1" || a.ResourceVersion != first || !strings.Contains(string(a.body), `"moment":{"time":"`) {
		t.Errorf("one object at %s: %s", first, a.body)
	}

	// Pages are of one state, named by its time from the second page on.
	path, got := "/cm?limit=2&at="+versions[4], []string{}
	for pages := 0; ; pages++ {
		a := r.get(path)
		got = append(got, a.values(t))
		r.set("default", fmt.Sprint("later", pages), "1")
		if a.Continue == "" {
			break
		}
		path = "/cm?limit=2&continue=" + a.Continue
	}
	if want := "a=2 b0=1|b1=1 b2=1|b3=1"; strings.Join(got, "|") != want {
		t.Errorf("the pages are %q, not %q", got, want)
	}
}

func TestMomentsThatCannotBeRead(t *testing.T) {
	r := start(t, remember(t, options{}))
	version := r.set("default", "a", "1")
	if a := r.get("/cm?at=-15m"); a.code != http.StatusGone || !strings.Contains(a.Error, "there is no history") {
		t.Errorf("before the history: %d %s", a.code, a.Error)
	}
	r.get("/cm")
	r.reach("", "/cm", version)
	for at, want := range map[string]string{
		"-15m":                    "410 begins at",
		"15m":                     "400 in the future",
		"0":                       "400 not a moment",
		"yesterday":               "400 not a moment",
		"2999-01-01T00:00:00Z":    "400 in the future",
		"999999":                  "400 reaches up to",
		"1":                       "410 begins at",
		version + "&watch=true":   "400 no meaning",
		version + "&source=live":  "400 leave out",
		version + "&visible=true": "400 visible",
	} {
		a := r.get("/cm?at=" + at)
		code, message, _ := strings.Cut(want, " ")
		if fmt.Sprint(a.code) != code || !strings.Contains(a.Error, message) {
			t.Errorf("at=%s: %d %s, not %s", at, a.code, a.Error, want)
		}
	}
	without := start(t, options{})
	if a := without.get("/cm?at=-15m"); a.code != http.StatusBadRequest || !strings.Contains(a.Error, "--history") {
		t.Errorf("without a history: %d %s", a.code, a.Error)
	}
}

func TestChangesOfAnObjectAndOfASelection(t *testing.T) {
	r := start(t, remember(t, options{}))
	r.reach("", "/cm", func() string { r.get("/cm"); v := r.set("default", "other", "0"); return v }())
	r.set("default", "a", "1", "app=web")
	r.set("default", "a", "2", "app=web")
	r.set("default", "a", "3")
	r.must(r.cluster.Delete(configMaps, "default", "a"))
	r.reach("", "/cm", r.cluster.ResourceVersion())

	type changes []struct {
		Type, Name string
		Fields     []struct {
			Op, Path string
			Old, New any
		}
	}
	read := func(path string) (out string, next string) {
		a := r.get(path)
		var list changes
		r.must(json.Unmarshal(a.Data, &list))
		for _, c := range list {
			out += c.Type + " " + c.Name
			for _, f := range c.Fields {
				out += fmt.Sprint(" ", f.Op, f.Path, " ", f.Old, "→", f.New)
			}
			out += "\n"
		}
		return out, a.Continue
	}
	if got, _ := read("/core/v1/configmaps/default/a?changes=true"); got != "ADDED a\nMODIFIED a ~.data.v 1→2\nMODIFIED a ~.data.v 2→3 -.metadata.labels <nil>→<nil>\nDELETED a\n" &&
		got != "ADDED a\nMODIFIED a ~.data.v 1→2\nMODIFIED a ~.data.v 2→3 -.metadata.labels map[app:web]→<nil>\nDELETED a\n" {
		t.Errorf("the changes of the object are\n%s", got)
	}
	if got, _ := read("/cm?changes=true&labels[app]=web&since=-1h"); got != "ADDED a\nMODIFIED a ~.data.v 1→2\nDELETED a\n" {
		t.Errorf("the changes of the selection are\n%s", got)
	}
	var all string
	for path := "/cm?changes=true&limit=2"; ; {
		got, next := read(path)
		if all += got; next == "" {
			break
		}
		path = "/cm?changes=true&limit=2&continue=" + next
	}
	whole, _ := read("/cm?changes=true")
	if all != whole || strings.Count(whole, "\n") != 5 && strings.Count(whole, "\n") != 4 {
		t.Errorf("the pages of the changes are\n%s, not\n%s", all, whole)
	}
}

// The rights of now govern the past. A namespace that was deleted, and one that has its
// name now, are not the same: the rights in the one say nothing about the other.
func TestThePastNeedsTheRightsOfNow(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	r := guarded(t, cp, remember(t, options{}))
	const canary = "canary-of-the-past"
	put := func(ns, name string) string {
		out := admin.do("POST", "/api/v1/namespaces/"+ns+"/configmaps", fmt.Sprintf(`{"metadata":{"name":%q},"data":{"v":%q}}`, name, canary))
		return out["metadata"].(map[string]any)["resourceVersion"].(string)
	}
	admin.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"past-a"}}`)
	admin.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"past-b"}}`)
	rules := `[{"apiGroups":[""],"verbs":["get","list","watch"],"resources":["configmaps"]}]`
	in := admin.serviceAccount("past-a", "in-a", rules, "past-a")
	everywhere := admin.serviceAccount("past-a", "everywhere-past", rules, "")
	r.as("admin-token", "/cm")
	r.reach("admin-token", "/cm", "-1ns")
	put("past-a", "mine")
	version := put("past-b", "secret")
	r.reach("admin-token", "/cm", version)

	refused := func(token, path string) {
		t.Helper()
		if a := r.as(token, path); a.code != http.StatusForbidden || strings.Contains(string(a.body), canary) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	allowed := func(token, path string) {
		t.Helper()
		if a := r.as(token, path); a.code != http.StatusOK || !strings.Contains(string(a.body), canary) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	for _, query := range []string{"at=" + version, "changes=true"} {
		allowed(everywhere, "/cm?"+query)
		allowed(everywhere, "/core/v1/configmaps/past-b/secret?"+query)
		refused(in, "/cm?"+query)
		refused(in, "/core/v1/configmaps/past-b?"+query)
		refused(in, "/core/v1/configmaps/past-b/secret?"+query)
		refused("nobody-token", "/cm?"+query)
	}
	// A difference takes the rights for both of its objects.
	for _, path := range []string{"past-a/mine?diff=true&with=past-b/secret", "past-b/secret?diff=true&with=past-a/mine", "past-a/mine?diff=true&with=past-b/secret&to=" + version} {
		if a := r.as(everywhere, "/core/v1/configmaps/"+path); a.code != http.StatusOK || !strings.Contains(string(a.body), ".metadata.name") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
		refused(in, "/core/v1/configmaps/"+path)
	}
	if a := r.as(in, "/core/v1/configmaps/past-a/mine?diff=true"); a.code != http.StatusOK {
		t.Errorf("the difference between an object and itself: %d %s", a.code, a.body)
	}
	// past-a is younger than a minute before the moment, so it could be another one.
	refused(in, "/core/v1/configmaps/past-a?at="+version)
	// How far the history reaches is not said either, except to those that may read it.
	const future = "?at=99999999999"
	refused(in, "/core/v1/configmaps/past-b"+future)
	refused(in, "/core/v1/configmaps/past-b/secret"+future)
	if a := r.as(in, "/core/v1/configmaps/past-a"+future); a.code != http.StatusBadRequest || !strings.Contains(string(a.body), "reaches up to") {
		t.Errorf("a version of the future: %d %s", a.code, a.body)
	}
	page := r.as(everywhere, "/cm?limit=1&at="+version)
	refused(in, "/cm?limit=1&continue="+page.Continue)
	refused(in, "/core/v1/configmaps/past-b?limit=1&continue="+page.Continue)
}
