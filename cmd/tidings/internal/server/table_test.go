package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
)

// A table has what the mirror has at the time of the request, rows and groups alike.
func TestTables(t *testing.T) {
	r := start(t, options{})
	r.set("a", "zero", "0", "app=web")
	table := func(query string) (keys []string, groups string) {
		t.Helper()
		a := r.get("/cm?table=true&" + query)
		var frame struct {
			Keys   []string
			Synced bool
			Groups *struct {
				Largest []struct {
					Values []any
					Rows   int
				}
				Distinct, Rest int
			}
		}
		if a.code != http.StatusOK || json.Unmarshal(a.Data, &frame) != nil || !frame.Synced || a.ResourceVersion == "" {
			t.Fatalf("%s: %d %s", query, a.code, a.body)
		}
		if frame.Groups != nil {
			groups = fmt.Sprint(frame.Groups.Largest, frame.Groups.Distinct, frame.Groups.Rest)
		}
		return frame.Keys, groups
	}
	for i := range 30 {
		name := fmt.Sprintf("n-%02d", i)
		r.set([]string{"a", "b"}[i%2], name, fmt.Sprint(i%3), "app=web")
		eventually(t, "the mirror has it", func() bool { return strings.Contains(string(r.get("/cm").body), name) })
		if keys, _ := table("filter=" + name); len(keys) != 1 {
			t.Fatalf("the table does not have %s: %v", name, keys)
		}
	}
	if keys, groups := table("count=3&first=1&sort=Name&descending=true&group=Namespace,.data.v"); fmt.Sprint(keys) != "[b/n-29 a/n-28 b/n-27]" || groups != "[{[a 0] 6} {[a 1] 5} {[a 2] 5} {[b 0] 5} {[b 1] 5} {[b 2] 5}] 6 0" {
		t.Errorf("%v, %s", keys, groups)
	}
	if keys, groups := table("count=1&namespace=a&filter=n-&group=.metadata.labels['app'],.none&sort=.data.v"); len(keys) != 1 || groups != "[{[web <nil>] 15} 1 0]" && groups != "[{[web <nil>] 15}] 1 0" {
		t.Errorf("%v, %s", keys, groups)
	}
	for query, says := range map[string]string{
		"table=true&group=": "name a column", "table=true&group=Nope": "no column", "table=true&group=a,b,c,d": "4 columns are named", "group=Name": "add table=true",
		"table=true&window=true": "has no meaning here", "table=true&limit=5": "has no meaning here", "folded=true": "has no meaning here", "table=maybe": "true or false",
		"name=zero": "namespace is required", "name=a/b&namespace=a": "cannot be the name", "name=zero&namespace=a&limit=1": "has no meaning here",
	} {
		if a := r.get("/cm?" + query); a.code != http.StatusBadRequest || !strings.Contains(a.Error, says) {
			t.Errorf("%s: %d %s", query, a.code, a.body)
		}
	}
	if a := r.get("/cm?name=zero&namespace=a"); a.code != http.StatusOK || !strings.Contains(string(a.Data), `"name":"zero"`) {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// Without a history, what has changed since a version is told from what the mirror retains:
// one change for each object, from then to now.
func TestFoldedChangesWithoutAHistory(t *testing.T) {
	r := start(t, options{})
	r.set("a", "stays", "1")
	r.set("a", "changes", "1", "app=web")
	r.set("a", "goes", "1")
	since := r.get("/cm").ResourceVersion
	for i := range 5 {
		r.set("a", "changes", fmt.Sprint(i+2), "app=web")
	}
	r.set("b", "comes", "1")
	r.set("a", "passes", "1")
	r.must(r.cluster.Delete(configMaps, "a", "passes"))
	r.must(r.cluster.Delete(configMaps, "a", "goes"))
	changes := func(query string) string {
		t.Helper()
		a := r.get("/cm?changes=true&folded=true&since=" + query)
		var data []past.Change
		if a.code != http.StatusOK || json.Unmarshal(a.Data, &data) != nil {
			t.Fatalf("%s: %d %s", query, a.code, a.body)
		}
		var out []string
		for _, c := range data {
			text := c.Type + " " + c.Namespace + "/" + c.Name
			for _, f := range c.Fields {
				text += fmt.Sprintf(" %s %s %s→%s", f.Op, f.Path, f.Old, f.New)
			}
			out = append(out, text)
		}
		return strings.Join(out, "; ")
	}
	eventually(t, "the mirror has it", func() bool { return !strings.Contains(string(r.get("/cm").body), `"goes"`) })
	if got := changes(since); got != `ADDED b/comes; MODIFIED a/changes ~ .data.v "1"→"6"; DELETED a/goes` {
		t.Error(got)
	}
	if got := changes(since + "&namespace=b"); got != "ADDED b/comes" {
		t.Error(got)
	}
	if got := changes(since + "&labels[app]=web"); got != `MODIFIED a/changes ~ .data.v "1"→"6"` {
		t.Error(got)
	}
	if got := changes(since + "&namespace=a&name=goes"); got != "DELETED a/goes" {
		t.Error(got)
	}
	if got := changes(r.get("/cm").ResourceVersion); got != "" {
		t.Error(got)
	}
	for query, want := range map[string]int{"since=1": http.StatusGone, "since=-1h": http.StatusBadRequest, "since=999999999": http.StatusBadRequest, "since=" + since + "&until=-1s": http.StatusBadRequest} {
		if a := r.get("/cm?changes=true&folded=true&" + query); a.code != want {
			t.Errorf("%s: %d %s", query, a.code, a.body)
		}
	}
}
