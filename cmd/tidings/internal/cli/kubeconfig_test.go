//go:build unix

package cli_test

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// announced waits until a server that makes its certificate has said where it serves.
func (s *session) announced() (said string) {
	s.world.Helper()
	for !strings.Contains(said, "msg=serving") {
		said += s.remark() + "\n"
	}
	return said
}

// freePort returns a port that is free, for a server that is started again. The system itself
// chooses ports from 32768 on, so no other program gets this one in between.
func freePort(t *testing.T) string {
	t.Helper()
	var err error
	for range 100 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal(err)
	return ""
}

// A kubeconfig that was written for others has nobody's credentials, names the address
// that it is told to, and works after the server has been started again.
func TestKubeconfigForOthers(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	r.kubectl("", "create", "configmap", "kept", "-n", controlplane.Namespace)
	dir := t.TempDir()
	folder, port := filepath.Join(dir, "tls"), freePort(t)
	start := func(written string) *session {
		s := r.begin("serve", "--listen", "127.0.0.1:"+port, "-v", "info", "--authentication", "upstream",
			"--tls-cert-dir", folder, "--external-url", "https://localhost:"+port+"/", "--write-kubeconfig", written)
		if said := s.announced(); !strings.Contains(said, "url=https://localhost:"+port+" ") {
			t.Errorf("it says %s", said)
		}
		return s
	}
	get := func(written, token string) string {
		args := []string{"get", "configmap", "kept", "-n", controlplane.Namespace, "-o", "name"}
		if token != "" {
			args = append(args, "--token", token)
		}
		out, _ := r.cp.KubectlCommand(t.Context(), written, args...).CombinedOutput()
		return string(out)
	}

	first, second := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")
	s := start(first)
	config, err := clientcmd.LoadFromFile(first)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if len(config.AuthInfos) != 0 || strings.Contains(string(content), "token") || config.Contexts[config.CurrentContext].AuthInfo != "" {
		t.Errorf("it has users:\n%s", content)
	}
	if server := config.Clusters[config.CurrentContext].Server; server != "https://localhost:"+port {
		t.Errorf("it leads to %s", server)
	}
	before := get(first, "namespaced-user-token")
	if before != "configmap/kept\n" {
		t.Errorf("kubectl: %s", before)
	}
	if got := get(first, "nobody-token"); !strings.Contains(got, `User "nobody" cannot get resource "configmaps"`) {
		t.Errorf("kubectl of nobody: %s", got)
	}
	if got := get(first, ""); strings.Contains(got, "configmap/kept") {
		t.Errorf("kubectl without a user: %s", got)
	}
	if code := s.stop(); code != 0 {
		t.Fatalf("it ends with %d", code)
	}

	start(second)
	for _, written := range []string{first, second} {
		if got := get(written, "namespaced-user-token"); got != before {
			t.Errorf("kubectl with %s after a restart: %s", filepath.Base(written), got)
		}
	}
}

// Without a folder the authority is another one at each start, and the program says so.
func TestKubeconfigForTheOccasion(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	dir, port := t.TempDir(), freePort(t)
	first, second := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")
	for _, written := range []string{first, second} {
		s := r.begin("serve", "--listen", "127.0.0.1:"+port, "-v", "info", "--authentication", "upstream", "--write-kubeconfig", written)
		if said := s.announced(); !strings.Contains(said, "--tls-cert-dir keeps its authority") {
			t.Errorf("it says %s", said)
		}
		if written == second {
			out, err := r.cp.KubectlCommand(t.Context(), first, "get", "ns", "--token", "admin-token").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "certificate") {
				t.Errorf("kubectl with the first after a restart: %v %s", err, out)
			}
		}
		s.stop()
	}
}
