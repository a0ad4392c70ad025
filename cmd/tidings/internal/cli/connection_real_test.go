//go:build unix

package cli_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// mirrored starts an authenticated mirror of a real cluster and returns its
// kubeconfig and the flags that reach it without one.
func mirrored(t *testing.T) (r *real, kubeconfig string, flags []string) {
	r = newReal(t, controlplane.Admin)
	kubeconfig = filepath.Join(t.TempDir(), "mirror.yaml")
	s := r.begin("serve", "--listen", "127.0.0.1:0", "-v", "info", "--authentication", "upstream", "--write-kubeconfig", kubeconfig, "--write-kubeconfig-users")
	s.announced()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return r, kubeconfig, []string{"--server", config.Host, "--certificate-authority", inFile(t, config.CAData)}
}

func TestRealAuthenticatedMirror(t *testing.T) {
	r, _, flags := mirrored(t)
	r.kubectl("", "create", "configmap", "reached", "-n", controlplane.Namespace)
	direct := []string{"--kubeconfig", r.kubeconfig}
	admin := inFile(t, []byte("admin-token\n"))
	for _, c := range []struct{ args, says string }{ // says an error, or nothing
		{"--token admin-token", ""},
		{"--token-file " + admin, ""},
		{"--token namespaced-user-token", ""},
		{"--token admin-token --as namespaced-user", ""},
		{"--token admin-token --as-uid 7 --as x --as-group system:masters", ""},
		{"--token nobody-token", `Error from server (Forbidden): configmaps is forbidden: User "nobody"`},
		{"--token admin-token --as nobody", `User "nobody" cannot list resource "configmaps"`},
		{"--token namespaced-user-token --as admin", "cannot impersonate"},
		{"--token wrong", "You must be logged in to the server"},
	} {
		for _, to := range [][]string{flags, direct} {
			args := append(append([]string{"get", "cm", "reached", "-o", "name", "-n", controlplane.Namespace}, strings.Fields(c.args)...), to...)
			if c.says != "" {
				args = append(args[:2], args[3:]...)
			}
			out, errs, code := runIn(t.Context(), args...)
			if c.says == "" && (out != "configmap/reached\n" || code != 0) || c.says != "" && (code != 1 || !strings.Contains(errs, c.says)) || strings.Contains(errs, "admin-token") {
				t.Errorf("%s: %d, %q, %q", args, code, out, errs)
			}
		}
	}
	if _, errs, code := runIn(t.Context(), append([]string{"get", "cm"}, flags...)...); code != 1 || !strings.Contains(errs, "authenticate with --token-file, --token or --client-certificate") {
		t.Errorf("%d, %q", code, errs)
	}
	flags = append(flags, "--token-file", admin)
	out, errs, code := runIn(t.Context(), append([]string{"get", "cm", "-n", controlplane.Namespace, "-o", "name", "--context", "*"}, flags...)...)
	if code != 0 || !strings.Contains(out, "configmap/reached\n") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	out, errs, code = runIn(t.Context(), append([]string{"api-resources", "-o", "name"}, flags...)...)
	if code != 0 || !strings.Contains(out, "configmaps\n") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	s := (&world{TB: t}).begin(append([]string{"watch", "cm", "reached", "-n", controlplane.Namespace}, flags...)...)
	s.expect("* ADDED ConfigMap team-a/reached …")
	r.kubectl("", "delete", "configmap", "reached", "-n", controlplane.Namespace)
	s.expect("* DELETED ConfigMap team-a/reached …")
}

// What is missing is reported in the words of kubectl, with its exit code.
func TestRealMissingAsInKubectl(t *testing.T) {
	r, kubeconfig, flags := mirrored(t)
	flags = append(flags, "--token", "admin-token")
	for _, args := range [][]string{{"get", "cm", "nosuch"}, {"get", "deployments/nosuch"}, {"get", "ns", "nosuch"}} {
		cmd := r.cp.KubectlCommand(t.Context(), kubeconfig, args...)
		said, _ := cmd.CombinedOutput()
		if !strings.HasPrefix(string(said), "Error from server (NotFound)") {
			t.Fatalf("kubectl says %s", said)
		}
		for _, to := range [][]string{flags, {"--kubeconfig", r.kubeconfig}} {
			for _, command := range []string{"get", "watch --once"} {
				_, errs, code := runIn(t.Context(), append(append(strings.Fields(command), args[1:]...), to...)...)
				if errs != string(said) || code != cmd.ProcessState.ExitCode() {
					t.Errorf("%s %s %s: %d, %q; kubectl: %d, %q", command, args[1:], to[:1], code, errs, cmd.ProcessState.ExitCode(), said)
				}
			}
		}
	}
	for _, to := range [][]string{flags, {"--kubeconfig", r.kubeconfig}} {
		_, errs, code := runIn(t.Context(), append([]string{"watch", "cm", "--since", "99999999"}, to...)...)
		if code != 1 || !strings.Contains(errs, "--since 99999999 is in the future") {
			t.Errorf("%d, %q", code, errs)
		}
	}
}

// A token on the command line is in no log of any level.
func TestRealTokenIsNotLogged(t *testing.T) {
	_, _, flags := mirrored(t)
	for _, command := range []string{"get", "watch --once", "get -n default --as nobody"} {
		cmd, out, errs := program(t, append(append(strings.Fields(command), "cm", "--token", "admin-token", "-v", "debug-10"), flags...)...)
		printed, _ := io.ReadAll(out)
		_ = cmd.Wait()
		if said := string(printed) + errs.String(); strings.Contains(said, "admin-token") || !strings.Contains(said, "Response Body") {
			t.Errorf("%s: %s", command, said)
		}
	}
}
