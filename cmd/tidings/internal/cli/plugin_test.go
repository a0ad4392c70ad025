//go:build unix

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// kubectl runs the program as its plugin, and asks it to complete arguments. What the
// plugin says can be typed.
func TestKubectlPlugin(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	for _, name := range []string{"kubectl-tidings", "kubectl_complete-tidings"} {
		if err := os.Symlink(self, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	for args, says := range map[string][]string{
		"tidings --help":                   {"\n  kubectl tidings watch ", "\n  kubectl tidings serve --demo ", "\n  kubectl tidings [command]"},
		"tidings get --help":               {"\n  kubectl tidings get pods ", "\n  kubectl tidings get RESOURCE", `a running "kubectl tidings serve"`},
		"tidings get":                      {`as in "kubectl tidings get pods"; "kubectl tidings api-resources" lists`},
		"tidings get ns -o name":           {"namespace/kube-system\n"},
		"__complete tidings get namespac":  {"namespaces\tNamespace v1\n", ":4\n"},
		"__complete tidings get ns kube-s": {"kube-system\n", ":4\n"},
	} {
		cmd := r.cp.KubectlCommand(t.Context(), r.kubeconfig, strings.Fields(args)...)
		cmd.Env = append(cmd.Env, asProgram+"=1", "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if failed := args == "tidings get"; (err != nil) != failed {
			t.Errorf("kubectl %s: %v", args, err)
		}
		contains(t, string(out), says...)
		if strings.Contains(string(out), "\n  tidings ") {
			t.Errorf("kubectl %s shows a command line that cannot be typed:\n%s", args, out)
		}
	}
}
