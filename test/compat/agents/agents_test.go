//go:build unix

// Package agents runs clients of the Model Context Protocol that are not written in Go: its conformance suite, and its SDK for
// TypeScript, on which editors and agents are built. npm installs them as package-lock.json says.
package agents

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// asProgram makes the test's own program be tidings.
const asProgram = "TIDINGS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// rig is a cluster, and a folder with the clients.
type rig struct {
	*testing.T
	cluster            *fakeapi.Cluster
	kubeconfig, folder string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("clients of the Model Context Protocol are not run: ", err)
	}
	r := &rig{T: t, cluster: fakeapi.New(fakeapi.Options{}), folder: t.TempDir()}
	for _, name := range []string{"package.json", "package-lock.json", "client.mjs"} {
		content, err := os.ReadFile(name)
		r.must(err)
		r.must(os.WriteFile(filepath.Join(r.folder, name), content, 0o644))
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = r.folder
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	config, stop, err := fakeapi.Serve(t.Context(), r.cluster)
	r.must(err)
	t.Cleanup(stop)
	r.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	r.must(controlplane.WriteKubeconfig(r.kubeconfig, config))
	r.must(r.put("made"))
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// put writes the object that the clients read.
func (r *rig) put(value string) error {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "one", Labels: map[string]string{"app": "web"}}
	_, err := r.cluster.Put(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"value": value}})
	return err
}

// change changes the object until the context ends: a subscription may begin after the answer to it.
func (r *rig) change(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if err := r.put(fmt.Sprint("changed ", i)); err != nil {
			r.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// command returns a command that runs in the folder of the clients.
func (r *rig) command(ctx context.Context, name string, args ...string) (cmd *exec.Cmd, errs *bytes.Buffer) {
	cmd, errs = exec.CommandContext(ctx, name, args...), new(bytes.Buffer)
	cmd.Dir, cmd.Stderr = r.folder, errs
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd, errs
}

// serve runs tidings serve, and returns the URL of its tools.
func (r *rig) serve() string {
	r.Helper()
	written := filepath.Join(r.TempDir(), "mirror")
	cmd, errs := r.command(context.Background(), os.Args[0], "serve", "--kubeconfig", r.kubeconfig, "--resource", "configmaps", "--listen", "127.0.0.1:0", "--write-kubeconfig", written)
	r.must(cmd.Start())
	r.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			r.Errorf("tidings serve: %v\n%s", err, errs)
		}
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		mirror, err := clientcmd.BuildConfigFromFlags("", written)
		if err == nil {
			var resp *http.Response
			if resp, err = http.Get(mirror.Host + "/readyz"); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					return mirror.Host + "/mcp"
				}
			}
		}
		if time.Now().After(until) {
			r.Fatal("tidings serve is not ready: ", err)
		}
	}
}

// Of the suite's scenarios, these are those that need no server made for the suite.
func TestConformance(t *testing.T) {
	r := newRig(t)
	url := r.serve()
	for _, scenario := range []string{"server-initialize", "ping", "logging-set-level", "tools-list", "resources-list", "prompts-list", "server-sse-polling", "dns-rebinding-protection"} {
		t.Run(scenario, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd, errs := r.command(ctx, filepath.Join("node_modules", ".bin", "conformance"), "server", "--url", url, "--scenario", scenario)
			out, err := cmd.Output()
			if err != nil || !bytes.Contains(out, []byte(" 0 failed")) {
				t.Fatalf("%v\n%s\n%s", err, out, errs)
			}
		})
	}
}

func TestTypeScript(t *testing.T) {
	r := newRig(t)
	url := r.serve()
	for name, args := range map[string][]string{
		"HTTP":                      {url},
		"standard input and output": {"--", os.Args[0], "mcp", "--kubeconfig", r.kubeconfig},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			cmd, errs := r.command(ctx, "node", append([]string{"client.mjs"}, args...)...)
			out, err := cmd.StdoutPipe()
			r.must(err)
			r.must(cmd.Start())
			got := map[string]string{}
			var changing sync.WaitGroup
			defer changing.Wait()
			defer cancel()
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var line struct{ Name, Value string }
				if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
					t.Fatalf("%s: %v", lines.Bytes(), err)
				}
				got[line.Name] = line.Value
				if line.Name == "subscribed" {
					changing.Go(func() { r.change(ctx) })
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			want := map[string]string{
				"tools": "at changes clusters count find get tree wait",
				"find":  "| default | one | 1 |",
				"get":   `there is no "none" among the configmaps in namespace default`,
			}
			if name != "HTTP" {
				want["updated"], want["read"] = "k8s://-/configmaps/default/one", "value: changed"
			}
			for of, text := range want {
				if !strings.Contains(got[of], text) {
					t.Errorf("%s: %q, without %q", of, got[of], text)
				}
			}
		})
	}
}
