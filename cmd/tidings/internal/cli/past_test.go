//go:build unix

package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// past is a world with a server that keeps a history of pods: web-1 and web-2 were there
// at the first moment; then web-1 got another image and a phase, web-2 was deleted, and
// web-3 created, before the second.
type past struct {
	*world
	dir           string
	server        *session
	url           string
	first, second string
}

func newPast(t *testing.T) *past {
	w := newWorld(t)
	p := &past{world: w, dir: filepath.Join(t.TempDir(), "history")}
	w.create(pod("web-1"), pod("web-2"), pod("db-1", func(p *corev1.Pod) { p.Labels["app"] = "db" }))
	p.server, p.url = w.serve("--resource", "pods", "--history", p.dir)
	p.first = p.moment(0)
	w.update("web-1", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2" })
	w.update("web-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	w.delete("web-2")
	w.create(pod("web-3"))
	p.second = p.moment(4)
	w.update("web-3", func(p *corev1.Pod) { p.Labels["later"] = "true" })
	p.moment(5)
	return p
}

// moment waits until a number of changes are recorded, and returns a time after them.
func (p *past) moment(changes int) string {
	p.Helper()
	return p.momentOf(p.url+"/pods", changes)
}

func (p *past) momentOf(address string, changes int) string {
	p.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var answer struct{ Data []any }
		_, body := httpGet(p, address+"?changes=true&since="+url.QueryEscape("2000-01-01T00:00:00Z"))
		if _ = json.Unmarshal([]byte(body), &answer); answer.Data != nil && len(answer.Data) == changes {
			return time.Now().Format(time.RFC3339Nano)
		}
		if time.Now().After(deadline) {
			p.Fatalf("not %d changes: %s", changes, body)
		}
	}
}

// offline ends the server, and returns the flags to read its folder.
func (p *past) offline() []string {
	p.Helper()
	if code := p.server.stop(); code != 0 {
		p.Fatal(code)
	}
	return []string{"--history", p.dir}
}

// runPast runs a command with the flags of a source, and returns its output.
func (p *past) runPast(source []string, want int, args ...string) (out, errs string) {
	p.Helper()
	out, errs, code := runIn(p.Context(), append(args, source...)...)
	if code != want {
		p.Fatalf("tidings %s: exit code %d, not %d: %s%s", strings.Join(args, " "), code, want, out, errs)
	}
	p.Logf("$ tidings %s\n%s%s", strings.Join(args, " "), errs, out)
	return out, errs
}

func TestThePast(t *testing.T) {
	p := newPast(t)
	p.read([]string{"--server", p.url})
	p.read(p.offline())
}

func (p *past) read(source []string) {
	out, errs := p.runPast(source, 0, "get", "pods", "--at", p.first)
	check(p, out, "NAME READY STATUS RESTARTS AGE", "db-1 …", "web-1 0/1 Pending …", "web-2 …")
	contains(p, errs, "pods at 20", "(resourceVersion ")
	out, _ = p.runPast(source, 0, "get", "pods", "-l", "app=web", "--at", p.second, "-o", "custom-columns=N:.metadata.name,I:.spec.containers[0].image,P:.status.phase", "--chunk-size", "1")
	check(p, out, "N I P", "web-1 web:2 Running", "web-3 web:1 Pending")
	out, _ = p.runPast(source, 0, "get", "pod/web-2", "--at", p.first, "-o", "jsonpath={.kind} {.metadata.name}")
	check(p, out, "Pod web-2")
	out, _ = p.runPast(source, 0, "get", "po", "-A", "--field-selector", "metadata.name=web-1", "--at", p.first, "-o", "name")
	check(p, out, "pod/web-1")
	_, errs = p.runPast(source, 1, "get", "pods", "web-2", "--at", p.second)
	contains(p, errs, `Error from server (NotFound): pods "web-2" not found`)
	_, errs = p.runPast(source, 1, "get", "pods", "--at", "2020-01-01T00:00:00Z")
	contains(p, errs, "the history of pods of cluster a begins at 20")
	_, errs = p.runPast(source, 1, "get", "pods", "--at", "15m")
	contains(p, errs, "--at: ", "is in the future")

	out, _ = p.runPast(source, 0, "history", "pod/web-1")
	check(p, out, "* MODIFIED * spec.containers[web].image", "* MODIFIED * status.phase")
	out, _ = p.runPast(source, 0, "history", "pods", "-l", "app=web", "--since", p.first, "--until", p.second, "-o", "diff")
	check(p, out, "* MODIFIED Pod default/web-1 *", "~ .spec.containers[web].image: web:1 → web:2",
		"* MODIFIED Pod default/web-1 *", "~ .status.phase: Pending → Running",
		"* DELETED Pod default/web-2 *", "* ADDED Pod default/web-3 *")
	out, _ = p.runPast(source, 0, "history", "pods", "web-1", "-o", "json")
	var last struct {
		Type, Kind, Name string
		Fields           []struct{ Op, Path, Old, New string }
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Kind != "Pod" || len(last.Fields) != 1 || last.Fields[0].New != "Running" {
		p.Errorf("%v: %s", err, out)
	}
	out, _ = p.runPast(source, 0, "history", "pods", "web-2", "-o", "yaml")
	contains(p, out, "# DELETED at 20", "  name: web-2\n")
	_, errs = p.runPast(source, 0, "history", "pods", "-l", "app=nothing")
	contains(p, errs, "No changes since 20", "pods: the history begins at 20")
	_, errs = p.runPast(source, 0, "history", "pods", "--since", p.first)
	if errs != "" {
		p.Errorf("of a time that the history has, it says %q", errs)
	}

	out, _ = p.runPast(source, 1, "diff", "pods", "-l", "app=web", "--from", p.first, "--to", p.second)
	check(p, out, "~ Pod default/web-1 * → *", "~ .spec.containers[web].image: web:1 → web:2", "~ .status.phase: Pending → Running", "- Pod default/web-2 *", "+ Pod default/web-3 *")
	out, _ = p.runPast(source, 1, "diff", "pod/web-3", "--from", p.second)
	check(p, out, "~ Pod default/web-3 * → *", "+ .metadata.labels.later: *")
	out, _ = p.runPast(source, 0, "diff", "pods", "-l", "app=db", "--from", p.first)
	check(p, out)
	out, _ = p.runPast(source, 1, "diff", "pods", "--from", p.first, "--to", p.second, "-o", "json")
	if n := strings.Count(out, "\n"); n != 3 || !strings.Contains(out, `{"op":"~","resource":"pods","kind":"Pod","namespace":"default","name":"web-1","from":"`) {
		p.Error(out)
	}
	_, errs = p.runPast(source, 2, "diff", "pods", "--from", "2020-01-01T00:00:00Z")
	contains(p, errs, "the history of pods of cluster a begins at 20")
	p.runPast(source, 2, "diff", "pods")
	p.runPast(source, 2, "diff", "nonsense", "--from", p.first)
}

// A time without a server is told from one in which changes were missed.
func TestAGapThatMissesNothing(t *testing.T) {
	p := newPast(t)
	source := p.offline()
	p.update("web-3", func(p *corev1.Pod) { p.Labels["later"] = "no" })
	p.server, p.url = p.serve("--resource", "pods", "--history", p.dir)
	p.moment(6)
	p.offline()
	out, _ := p.runPast(source, 0, "history", "pods", "web-3")
	contains(t, out, "GAP       until ", " changes are recorded late: the mirror was stopped")
	out, _ = p.runPast(source, 0, "history", "pods", "web-3", "-o", "json")
	contains(t, out, `"type":"GAP"`, `"late":true`)
	out, _ = p.runPast(source, 0, "history", "pods", "web-3", "-o", "yaml")
	contains(t, out, "# changes are recorded late from 20")
}

// On a terminal of 80 columns each line of a history has room on one line.
func TestAHistoryFitsTheTerminal(t *testing.T) {
	w := newWorld(t)
	name := "checkout-with-a-very-long-name-6d5f8c9b7-x2x9p"
	w.create(pod(name))
	p := &past{world: w}
	_, p.url = w.serve("--resource", "pods", "--history", filepath.Join(t.TempDir(), "history"))
	p.moment(0)
	w.update(name, func(p *corev1.Pod) {
		p.Labels["app.kubernetes.io/name"], p.Spec.NodeName, p.Status.Phase, p.Spec.Containers[0].Image = "checkout", "node-1", corev1.PodRunning, "web:2"
	})
	p.moment(1)
	for _, args := range [][]string{{"pods"}, {"pods", name}} {
		var out bytes.Buffer
		code := cli.Run(t.Context(), cli.IO{Out: &out, Err: io.Discard, OutTerminal: true, OutWidth: 80}, append([]string{"history", "--server", p.url}, args...)...)
		line := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(strings.TrimSuffix(out.String(), "\n"), "")
		if n := utf8.RuneCountInString(line); code != 0 || n > 80 || n < 60 || !strings.Contains(line, "app.kubernetes.io/name") && !strings.Contains(line, "+") {
			t.Errorf("%d columns: %s", n, line)
		}
		t.Log(line)
	}
}

// A folder is read as it is: nothing in it changes, and it needs no lock file.
func TestAFolderIsOnlyRead(t *testing.T) {
	p := newPast(t)
	_, errs := p.runPast([]string{"--history", p.dir}, 1, "get", "pods")
	contains(t, errs, "a server has the folder open; ask the server with --server")
	cmd, _, told := program(t, "get", "pods", "--history", p.dir)
	if err := cmd.Wait(); err == nil || !strings.Contains(told.String(), "a server has the folder open") {
		t.Errorf("another process reads it: %v, %s", err, told)
	}
	source := p.offline()
	if err := os.Remove(filepath.Join(p.dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	before := contents(t, p.dir)
	out, errs := p.runPast(source, 0, "get", "pods", "--show-labels")
	check(t, out, "NAME …", "db-1 …", "web-1 …", "web-3 … later=true")
	contains(t, errs, "pods at 20")
	_, errs = p.runPast(source, 1, "watch", "pods")
	contains(t, errs, "--history", "a folder has only the past")
	if after := contents(t, p.dir); after != before {
		t.Errorf("the folder has changed from\n%s\nto\n%s", before, after)
	}
	_, errs = p.runPast([]string{"--history", t.TempDir()}, 1, "get", "pods")
	contains(t, errs, "there is none in this folder")
	_, errs = p.runPast([]string{"--history", filepath.Join(p.dir, "none")}, 1, "get", "pods")
	contains(t, errs, "there is no such folder")
	_, errs = p.runPast(source, 1, "get", "pods", "--cluster", "b")
	contains(t, errs, `it has no cluster "b"; there are: a`)
	_, errs = p.runPast(source, 1, "get", "deploy")
	contains(t, errs, `the server doesn't have a resource type "deploy"`)
}

// contents describes all files of a folder.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			out.WriteString(info.Name() + " " + info.ModTime().String() + "\n")
			var text []byte
			text, err = os.ReadFile(path)
			out.Write(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSeveralClustersOfThePast(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.create(pod("in-a"))
	if _, err := w.clusters[1].Create(pod("in-b")); err != nil {
		t.Fatal(err)
	}
	p := &past{world: w, dir: filepath.Join(t.TempDir(), "history")}
	p.server, p.url = w.serve("--context", "*", "--resource", "pods", "--history", p.dir)
	of := func(name string) *past { return &past{world: w, url: p.url + "/clusters/" + name} }
	of("a").moment(0)
	begun := of("b").moment(0)
	for i, c := range w.clusters {
		o, err := c.Get(pods, "default", []string{"in-a", "in-b"}[i])
		if err != nil {
			t.Fatal(err)
		}
		changed := o.(*corev1.Pod).DeepCopy()
		changed.Labels["x"] = "1"
		if _, err := c.Update(changed); err != nil {
			t.Fatal(err)
		}
		of([]string{"a", "b"}[i]).moment(1)
	}
	read := func(source ...string) {
		t.Helper()
		out, _ := p.runPast(source, 0, "get", "pods", "--at", "-0s")
		check(t, out, "CLUSTER NAME …", "a in-a …", "b in-b …")
		out, _ = p.runPast(source, 0, "history", "pods")
		contains(t, out, "a  Pod default/in-a", "b  Pod default/in-b")
		out, _ = p.runPast(source, 1, "diff", "pods", "--from", begun)
		check(t, out, "~ a Pod default/in-a …", "+ .metadata.labels.x: …", "~ b Pod default/in-b …", "+ .metadata.labels.x: …")
	}
	read("--server", p.url, "--context", "*")
	source := p.offline()
	_, errs := p.runPast(source, 1, "get", "pods")
	contains(t, errs, "it has several clusters; choose with --cluster: a, b")
	read(append(source, "--cluster", "*")...)
	out, _ := p.runPast(append(source, "--cluster", "b"), 0, "get", "pods", "-o", "name")
	check(t, out, "pod/in-b")
}

// A folder has the histories of two clusters, of which the second has taken the name of the
// first.
func TestTwoClustersOfOneName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	var p *past
	for _, uid := range []types.UID{"uid-1", "uid-2"} {
		w := newWorld(t, fakeapi.Options{SystemNamespace: func(ns *corev1.Namespace) { ns.UID = uid }})
		w.create(pod("of-" + string(uid)))
		p = &past{world: w, dir: dir}
		p.server, p.url = w.serve("--resource", "pods", "--history", dir)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			// Until the server knows which cluster it is, it tells the past of the one before.
			_, body := httpGet(t, p.url+"/pods?at=-0s")
			if strings.Contains(body, "of-"+string(uid)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("nothing is recorded of the cluster %s: %s", uid, body)
			}
		}
		p.offline()
	}
	source := []string{"--history", dir}
	out, errs := p.runPast(source, 0, "get", "pods", "-o", "name")
	check(t, out, "pod/of-uid-2")
	contains(t, errs, "a is the newest cluster of that name; another was recorded from 20", "--cluster a@uid-1")
	out, errs = p.runPast(append(source, "--cluster", "a@uid-1"), 0, "get", "pods", "-o", "name")
	check(t, out, "pod/of-uid-1")
	if strings.Contains(errs, "newest cluster") || strings.Contains(errs, "the state before is shown") {
		t.Errorf("of the older cluster it says %q", errs)
	}
	out, _ = p.runPast(append(source, "--cluster", "a*"), 0, "get", "pods")
	check(t, out, "CLUSTER NAME …", "a of-uid-2 …", "a@uid-1 of-uid-1 …")
	_, errs = p.runPast(append(source, "--cluster", "b"), 1, "get", "pods")
	contains(t, errs, `it has no cluster "b"; there are: a (20`, "), a@uid-1 (20")
}

// A server ended before it had a first list to record.
func TestAFolderOfWhichNothingIsRecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	store, err := history.Open(dir, history.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Writer(history.Resource{Cluster: "a", ClusterUID: "uid-1", Version: "v1", Resource: "pods"}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	p := &past{world: newWorld(t)}
	for _, command := range []string{"get", "tree"} {
		_, errs := p.runPast([]string{"--history", dir}, 1, command, "pods/x")
		contains(t, errs, "--history "+dir+": nothing of a has been recorded yet")
	}
}

// A server tells the past of a cluster that it cannot reach, if it once could.
func TestThePastOfAClusterThatIsAway(t *testing.T) {
	p := newPast(t)
	p.offline()
	p.kubeconfig = kubeconfigOf(t, "http://127.0.0.1:1")
	old, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	old.Contexts["a"], old.CurrentContext = old.Contexts["x"], "a"
	delete(old.Contexts, "x")
	if err := clientcmd.WriteToFile(*old, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	_, address := p.serve("--history", p.dir)
	for _, path := range []string{"/po?", "/core/v1/pods?namespace=default&"} {
		code, body := httpGet(t, address+path+"at="+url.QueryEscape(p.first))
		if code != 200 || strings.Count(body, `"kind":"Pod"`) != 3 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := httpGet(t, address+"/core/v1/pods/default/web-1?changes=true"); code != 200 || strings.Count(body, `"MODIFIED"`) != 2 {
		t.Errorf("%d %s", code, body)
	}
	p.read([]string{"--server", address})
}

func TestThePastOfTheDemo(t *testing.T) {
	w := &world{TB: t}
	_, url := w.serve("--demo", "--resource", "pods")
	p := &past{world: w, url: url}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if code, body := httpGet(t, url+"/pods?at=-0s&limit=1"); code == 200 {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(body)
		}
	}
	out, errs := p.runPast([]string{"--server", url}, 0, "get", "pods", "-A", "--at", "-0s")
	contains(t, out, "NAMESPACE", "Running")
	contains(t, errs, "pods at 20")
}

func TestWhatHasNoPast(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	_, errs, code := w.run("get", "pods", "--at", "-1m")
	if code != 1 {
		t.Error(code)
	}
	contains(t, errs, "keeps no past", "--server", "--history")
	_, errs, _ = w.run("history", "pods")
	contains(t, errs, "keeps no past")
	_, errs, _ = runIn(t.Context(), "get", "pods", "--at", "-1m", "--demo")
	contains(t, errs, "tidings serve --demo")
	_, url := w.serve()
	_, errs, _ = w.run("get", "pods", "--at", "-1m", "--server", url)
	contains(t, errs, "this server keeps no history: start it with --history")
	for _, flag := range []string{"--watch", "--raw=/x", "--subresource=status"} {
		args := []string{"get", "pods", "--at", "-1m", flag}
		if strings.HasPrefix(flag, "--raw") {
			args = []string{"get", "--at", "-1m", flag}
		}
		if _, errs, code := w.run(args...); code != 1 || !strings.Contains(errs, "--at") {
			t.Errorf("%s: %d %s", flag, code, errs)
		}
	}
}
