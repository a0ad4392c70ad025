//go:build unix

package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// records parses a log in JSON. Each line must be a record.
func records(t *testing.T, log string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(log) {
		r := map[string]any{}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r["time"] == nil || r["level"] == nil || r["msg"] == nil {
			t.Errorf("not a record: %v: %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// find returns the record with a message, nil if there is none.
func find(all []map[string]any, msg string) map[string]any {
	if i := slices.IndexFunc(all, func(r map[string]any) bool { return r["msg"] == msg }); i >= 0 {
		return all[i]
	}
	return nil
}

func TestServeLog(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.create(pod("p"))
	s := w.begin("serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--context", "a", "--context", "b", "--resource", "pods", "--max-watches", "7", "--pprof", "localhost:0")
	var log strings.Builder
	var serving map[string]any
	for serving == nil {
		line := s.remark() + "\n"
		log.WriteString(line)
		serving = find(records(t, line), "serving")
	}
	resp, err := http.Get(serving["url"].(string) + "/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	profiles := find(records(t, log.String()), "serving profiles")["url"].(string)
	if code, body := httpGet(t, profiles+"goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("profiles: %d %s", code, body)
	}
	rebound, err := http.NewRequestWithContext(t.Context(), http.MethodGet, profiles, nil)
	if err != nil {
		t.Fatal(err)
	}
	rebound.Host = "attacker.example"
	refused, err := http.DefaultClient.Do(rebound)
	if err != nil {
		t.Fatal(err)
	}
	if refused.Body.Close(); refused.StatusCode != http.StatusForbidden {
		t.Errorf("a page that takes this machine's address gets the profiles: %d", refused.StatusCode)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	for line := range s.stderr {
		log.WriteString(line + "\n")
	}

	all := records(t, log.String())
	if first, last := all[0]["msg"], all[len(all)-1]["msg"]; first != "starting" || last != "stopped" {
		t.Errorf("the first record is %v, the last %v", first, last)
	}
	for msg, want := range map[string]map[string]any{
		"starting":      {"version": "devel"},
		"mirroring":     {"resources": []any{"pods"}, "retain": 2000.0, "backlog": 5000.0, "dropUnreadAfter": "1h0m0s"},
		"callers":       {"authentication": "none", "passthrough": false},
		"limits":        {"requests": 400.0, "watches": 7.0, "watchesPerCaller": 1000.0},
		"cluster added": {"cluster": "a", "server": w.hosts[0]},
		"shutting down": {"why": "context canceled", "watches": 1.0},
		"drained":       {"watches": 1.0, "cutOff": 0.0},
	} {
		got := find(all, msg)
		if got == nil {
			t.Errorf("no record %q in\n%s", msg, log.String())
		}
		for key, value := range want {
			if text := func(v any) string { b, _ := json.Marshal(v); return string(b) }; text(got[key]) != text(value) {
				t.Errorf("%s: %s is %v, want %v", msg, key, got[key], value)
			}
		}
	}
}

// The process says which signal ended it. What libraries log has the same form.
func TestServeLogOfTheProcess(t *testing.T) {
	w := newWorld(t)
	upstream, err := url.Parse(w.hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Warning", `299 - "this is deprecated"`) // client-go logs it with klog
		return nil
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	written := filepath.Join(t.TempDir(), "kubeconfig")
	cmd, _, errs := program(t, "serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--resource", "pods", "--write-kubeconfig", written, "--kubeconfig", kubeconfigOf(t, front.URL))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(written); err == nil { // about to serve
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not serve")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs)
	}
	all := records(t, errs.String())
	if got := find(all, "shutting down"); got == nil || got["why"] != "terminated signal received" {
		t.Errorf("it ends because of %v", got)
	}
	if find(all, "Warning: this is deprecated") == nil {
		t.Errorf("a warning of client-go is not in the log:\n%s", errs)
	}
}

// A resource that no cluster serves is an error, but not one that a cluster that cannot
// be asked may serve.
func TestServeChecksItsResources(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	_, errs, code := w.run("serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--context", "*", "--resource", "pods", "--resource", "podz")
	if last := records(t, errs); code != 1 || last[len(last)-1]["msg"] != "stopped" {
		t.Errorf("it ends with %d: %s", code, errs)
	} else {
		if err := last[len(last)-1]["err"].(string); !strings.HasPrefix(err, "--resource") {
			t.Errorf("the error begins as on a terminal: %s", err)
		}
		contains(t, last[len(last)-1]["err"].(string), "--resource podz: none of the 2 clusters serves it", "did you mean pods?")
	}

	w.clusters[1].SetDown(true)
	s := w.begin("serve", "--listen", "127.0.0.1:0", "--context", "*", "--resource", "podz")
	var log []string
	for len(log) == 0 || !strings.Contains(log[len(log)-1], "msg=serving") {
		log = append(log, s.remark())
	}
	contains(t, strings.Join(log, "\n"), `msg="cannot check a requested resource`, "resource=podz clusters=[b]")
	if code := s.stop(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
}
