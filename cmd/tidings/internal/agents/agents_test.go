package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers is a server that gives one answer to everything.
type answers struct {
	code   int
	header http.Header
	body   string
	asked  *[]string
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.asked != nil {
		*a.asked = append(*a.asked, r.URL.RequestURI())
	}
	if a.code == 0 {
		a.code = http.StatusOK
	}
	if a.header == nil {
		a.header = http.Header{}
	}
	return &http.Response{StatusCode: a.code, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// client connects the SDK's client to the tools of a server.
func client(t *testing.T, of http.RoundTripper) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := NewServer(Options{Transport: of, Base: &url.URL{Scheme: "http", Host: "test"}}).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(); _ = server.Wait() })
	return session
}

func callTool(t *testing.T, c *mcp.ClientSession, tool string, arguments any) (string, bool) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	return r.Content[0].(*mcp.TextContent).Text, r.IsError
}

// The catalogue is sent with every conversation.
func TestTheCatalogueIsSmall(t *testing.T) {
	list, err := client(t, answers{}).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if tokens := len(content) / 4; len(list.Tools) != 8 || tokens >= 3000 {
		t.Errorf("%d tools take %d tokens", len(list.Tools), tokens)
	}
	for _, one := range list.Tools {
		for name := range one.InputSchema.(map[string]any)["properties"].(map[string]any) {
			if arguments[name].text == "" {
				t.Errorf("%s: the argument %s is not described", one.Name, name)
			}
		}
	}
}

// What is wrong with the arguments is said, with what to give instead.
func TestWrongArguments(t *testing.T) {
	c := client(t, answers{body: "{}"})
	for _, w := range []struct {
		tool, arguments, says string
	}{
		{"find", `{}`, "find needs resource"},
		{"find", `[]`, "not a JSON object; find takes: resource"},
		{"find", `{"resource":"pods","labels":"x"}`, `no argument "labels"; it takes: resource, cluster`},
		{"find", `{"resource":"pods","limit":501}`, "limit: 501 is not between 1 and 500"},
		{"find", `{"resource":"pods","limit":-1}`, "limit: -1 is not an integer"},
		{"find", `{"resource":"pods","limit":"many"}`, "rows, 1 to 500"},
		{"find", `{"resource":"pods","maxBytes":1}`, "not between 1024 and 65536"},
		{"find", `{"resource":"../secrets"}`, "cannot be the name of a resource"},
		{"find", `{"resource":"metrics"}`, "cannot be the name of a resource"},
		{"find", `{"resource":"pods","cluster":".."}`, "not the name of a cluster"},
		{"find", `{"resource":["pods"]}`, "is not a string"},
		{"find", `{"resource":"pods","columns":{"a":1}}`, "is not a list"},
		{"find", `{"resource":"` + strings.Repeat("x", 2000) + `"}`, "may have 1024 bytes"},
		{"get", `{"resource":"pods"}`, "get needs name"},
		{"get", `{"resource":"pods","name":"x","fields":"spec"}`, "not the path of a field"},
		{"changes", `{"resource":"pods"}`, "changes needs since"},
		{"changes", `{"resource":"a,b,c,d,e,f,g,h,i","since":"1"}`, "9 are named, and 8 may be"},
		{"changes", `{"resource":"a,b,c","since":"1,2"}`, "it has 2 versions, and 3 resources are named"},
		{"changes", `{"resource":"a,b","since":"1","name":"x"}`, "name one resource"},
		{"wait", `{"resource":"pods","name":"x","for":"Ready"}`, "is not a condition"},
		{"wait", `{"resource":"pods","name":"x","for":".spec["}`, "is not a condition"},
		{"wait", `{"resource":"pods","name":"x","for":"create","seconds":51}`, "not between 1 and 50"},
		{"tree", `{"resource":"pods","name":"x","neighbours":"perhaps"}`, "is not a boolean"},
	} {
		text, failed := callTool(t, c, w.tool, json.RawMessage(w.arguments))
		if !failed || !strings.Contains(text, w.says) || !strings.HasPrefix(text, "error: ") || len(text) > 700 {
			t.Errorf("%s %s: %v %s", w.tool, w.arguments, failed, text)
		}
	}
}

// A refusal of the server is passed on, with what to do.
func TestRefusals(t *testing.T) {
	c := client(t, answers{code: 403, header: http.Header{"Retry-After": {"5"}}, body: `{"error":"no\nIgnore all","reason":"Forbidden","exists":["a\nb","c"]}`})
	if text, failed := callTool(t, c, "find", map[string]any{"resource": "pods"}); !failed || text != "error: Forbidden\n| no\\nIgnore all\n| there are: a\\nb, c\nRetry after 5s.\n"+advice["Forbidden"] {
		t.Error(text)
	}
	for _, a := range []answers{{code: 502, body: "<html>"}, {code: 200, body: "<html>"}, {code: 200, body: `{"data":3}`}, {code: 302}} {
		if text, failed := callTool(t, client(t, a), "get", map[string]any{"resource": "pods", "name": "x"}); !failed || !strings.HasPrefix(text, "error: ") {
			t.Errorf("%d %s: %s", a.code, a.body, text)
		}
	}
}

// Requests have the arguments in their place, whatever is in them.
func TestRequests(t *testing.T) {
	var asked []string
	c := client(t, answers{body: `{"data":{}}`, asked: &asked})
	for _, w := range []struct {
		tool, arguments, want string
	}{
		{"find", `{"resource":"Pods","cluster":"a/b","filter":"x&watch=true","sort":"-Age","from":"50","columns":"Name,.spec.nodeName"}`, "/clusters/a%2Fb/pods?columns=Name%2C.spec.nodeName&count=50&descending=true&filter=x%26watch%3Dtrue&first=50&sort=Age&table=true&visible=true"},
		{"count", `{"resource":"pods","namespace":"n?x=1","by":["Status"]}`, "/pods?count=1&group=Status&namespace=n%3Fx%3D1&table=true"},
		{"get", `{"resource":"pods","name":"../x","namespace":"n"}`, "/pods?name=..%2Fx&namespace=n"},
		{"at", `{"resource":"pods","moment":"-5m"}`, "/pods?at=-5m&count=50&first=0&table=true"},
		{"changes", `{"resource":"pods","since":17}`, "/pods?changes=true&folded=true&since=17"},
	} {
		asked = nil
		if text, _ := callTool(t, c, w.tool, json.RawMessage(w.arguments)); len(asked) != 1 || asked[0] != w.want {
			t.Errorf("%s: %v, want %s\n%s", w.arguments, asked, w.want, text)
		}
	}
}

// An answer fits its budget, says what is missing, and all of it can be had.
func TestAnswersFitTheirBudget(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}, "data": map[string]any{"long": long}}
	for i := range 500 {
		object["data"].(map[string]any)[fmt.Sprintf("key-%03d", i)] = strings.Repeat("v", 50)
	}
	body, _ := json.Marshal(map[string]any{"data": object, "resourceVersion": "7"})
	c := client(t, answers{body: string(body)})
	for _, most := range []int{1024, 8192, 65536} {
		text, _ := callTool(t, c, "get", map[string]any{"resource": "cm", "name": "x", "maxBytes": most})
		if len(text) > most || !strings.Contains(text, "version 7") || !strings.Contains(text, "Cut: ") && most < 65536 || !strings.Contains(text, "1 long text is cut") {
			t.Errorf("%d bytes of %d:\n%.300s", len(text), most, text)
		}
	}
	var got strings.Builder
	next := regexp.MustCompile(`Cut: .*from=(\d+)`)
	for from, pages := "0", 0; ; pages++ {
		text, _ := callTool(t, c, "get", map[string]any{"resource": "cm", "name": "x", "fields": ".data.long", "from": from, "maxBytes": 65536})
		for _, line := range strings.Split(text, "\n") {
			if line, data := strings.CutPrefix(line, mark); data {
				got.WriteString(strings.TrimPrefix(line, ".data.long: "))
			}
		}
		m := next.FindStringSubmatch(text)
		if m == nil || pages > 10 {
			break
		}
		from = m[1]
	}
	if got.String() != long {
		t.Errorf("%d bytes of %d can be had", got.Len(), len(long))
	}
}

// The data of a Secret does not pass, wherever it is.
func TestSecretsAreWithheld(t *testing.T) {
	const word = "hunter2hunter2"
	o := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"password": word}, "stringData": word, "extra": word,
		"metadata": map[string]any{"name": "x", "managedFields": []any{word}, "annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": word, "any": word}},
	}
	body, _ := json.Marshal(map[string]any{"data": o, "resourceVersion": "7"})
	c := client(t, answers{body: string(body)})
	for _, fields := range []string{"", ".data", ".data.password", ".stringData", ".metadata.annotations", ".metadata", ".extra", "['data']['password']"} {
		arguments := map[string]any{"resource": "secrets", "name": "x"}
		if fields != "" {
			arguments["fields"] = fields
		}
		if text, failed := callTool(t, c, "get", arguments); failed || strings.Contains(text, word) {
			t.Errorf("%s: %s", fields, text)
		}
	}
}

func TestConditions(t *testing.T) {
	pod := func(phase, ready string) map[string]any {
		return map[string]any{"status": map[string]any{"phase": phase, "n": json.Number("3"), "conditions": []any{map[string]any{"type": "Other", "status": "False"}, map[string]any{"type": "Ready", "status": ready}}}}
	}
	for _, c := range []struct {
		text     string
		object   map[string]any
		versions int
		want     bool
	}{
		{"create", nil, 0, false}, {"create", pod("x", ""), 1, true},
		{"delete", nil, 0, true}, {"delete", pod("x", ""), 1, false},
		{"change", pod("x", ""), 1, false}, {"change", pod("x", ""), 2, true},
		{"condition=Ready", pod("x", "True"), 1, true}, {"condition=Ready", pod("x", "False"), 1, false}, {"condition=Ready", nil, 0, false},
		{"condition=Ready=False", pod("x", "False"), 1, true}, {"condition=Missing", pod("x", "True"), 1, false},
		{".status.phase=Running", pod("Running", ""), 1, true}, {".status.phase=Running", pod("Pending", ""), 1, false},
		{".status.phase!=Running", pod("Pending", ""), 1, true}, {".status.phase!=Running", nil, 0, false}, {".status.n=3", pod("", ""), 1, true},
		{"jsonpath={.status.phase}=Running", pod("Running", ""), 1, true},
		{`.status.conditions[?(@.type=="Ready")].status=True`, pod("", "True"), 1, true},
	} {
		parsed, err := parseCondition(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if got, instead := parsed.holds(c.object, c.versions); got != c.want {
			t.Errorf("%s of %v: %v (%s)", c.text, c.object, got, instead)
		}
	}
}

// Any arguments are parsed, or refused in words.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{`{"resource":"pods"}`, `{"resource":"pods","limit":"5","columns":["a","b"],"since":12,"neighbours":"true"}`, `{"resource":null,"name":1e9}`, `[`, `{"for":"condition=Ready=x","resource":"a","name":"b"}`} {
		f.Add(uint8(1), seed)
	}
	f.Fuzz(func(t *testing.T, n uint8, raw string) {
		tool := tools[int(n)%len(tools)]
		g, err := tool.parse(json.RawMessage(raw))
		if err != nil {
			if w := wrong(""); !errors.As(err, &w) || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 2000 {
				t.Errorf("%q: %q", raw, err)
			}
			return
		}
		for name := range g.texts {
			if !slices.Contains(tool.takes(), name) {
				t.Errorf("%q: %s", raw, name)
			}
		}
		c := &call{session: &session{}, given: g, ctx: context.Background(), tool: tool}
		if path, err := c.path(g.texts["resource"]); err == nil && (strings.Contains(path, "..") && !strings.Contains(g.texts["cluster"], "..") && !strings.Contains(g.texts["resource"], "..") || strings.ContainsAny(path, "?#\n ")) {
			t.Errorf("%q: %s", raw, path)
		}
		_, _ = parseCondition(g.texts["for"])
	})
}

// A text of a cluster is one line without hidden characters, and a cut one is not longer.
func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\nb|c", "\x1b[31m\u202e\U000e0041\xff", strings.Repeat("é", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{quote(s), cells([]string{s, s})} {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, hides) {
				t.Errorf("%q: %q", s, got)
			}
		}
		if got := cells([]string{s, "x"}); strings.Count(got, " | ")-strings.Count(got, `\| `) > 1 && !strings.Contains(s, "|") {
			t.Errorf("%q: %q", s, got)
		}
		for _, n := range []int{10, 100} {
			if got := cut(s, n); len(s) <= n && got != s || utf8.ValidString(s) && !utf8.ValidString(got) || len(got) > max(len(s)+40, n+40) {
				t.Errorf("%q at %d: %q", s, n, got)
			}
		}
	})
}
