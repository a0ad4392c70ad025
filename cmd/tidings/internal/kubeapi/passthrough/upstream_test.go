package passthrough_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/passthrough"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// changing matches what differs between two answers.
var changing = regexp.MustCompile(`\d+s|uid: .*|creationTimestamp: .*|resourceVersion: .*|127\.0\.0\.1:\d+|(?m)^[EIW]\d{4} .*\n`)

// kubectl prints the same through a mirror as for the cluster, for every user: the rights
// of the user apply, though the mirror itself has all.
func TestKubectl(t *testing.T) {
	cp := controlplane.Shared(t)
	c, err := cluster.New("real", cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	h := passthrough.New(passthrough.Options{Cluster: func(context.Context) (*cluster.Cluster, error) { return c, nil }})
	t.Cleanup(h.Close)
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS() // kubectl sends no token without
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})

	home := t.TempDir()
	manifest := filepath.Join(home, "pod.yaml")
	if err := os.WriteFile(manifest, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: applied}\nspec: {containers: [{name: a, image: b}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := func(kubeconfig, command string) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(cp.BinDir(), "kubectl"), strings.Fields(command)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+home)
		cmd.Stdin = bytes.NewReader(nil)
		out, err := cmd.CombinedOutput()
		text := changing.ReplaceAllString(string(out), "*")
		if err != nil {
			text += err.Error()
		}
		return text
	}
	script := []string{
		"auth whoami",
		"auth can-i create pods -n team-a", "auth can-i create pods -n default", "auth can-i --list -n team-a",
		"create configmap written --from-literal=a=b -n NAMESPACE",
		"apply -f " + manifest + " -n NAMESPACE",
		"label pod applied a=b -n NAMESPACE",
		"get pod applied -n NAMESPACE -o name",
		"logs applied -n NAMESPACE", // says that it has no host
		"exec applied -n NAMESPACE -- sh",
		"port-forward applied 18080:80 -n NAMESPACE",
		"scale deployment nothing --replicas=1 -n NAMESPACE",
		"delete pod applied configmap/written -n NAMESPACE --wait=false",
		"delete pod applied -n NAMESPACE --force --grace-period=0",
		"delete configmap written -n NAMESPACE",
		"create namespace made-by-USER", "delete namespace made-by-USER --wait=false",
		"top nodes", "get --raw /apis/metrics.k8s.io/v1beta1/nodes",
		"auth whoami --as=admin",
	}
	for _, user := range []controlplane.User{controlplane.Admin, controlplane.NamespacedUser, controlplane.Nobody} {
		t.Run(string(user), func(t *testing.T) {
			through := filepath.Join(t.TempDir(), "kubeconfig")
			if err := controlplane.WriteKubeconfig(through, &rest.Config{Host: s.URL, BearerToken: cp.Config(user).BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}); err != nil {
				t.Fatal(err)
			}
			for _, namespace := range []string{controlplane.Namespace, "default"} {
				var direct, mirrored []string
				for _, way := range []struct {
					kubeconfig string
					said       *[]string
				}{{cp.Kubeconfig(user), &direct}, {through, &mirrored}} {
					for _, command := range script {
						if strings.HasPrefix(command, "create namespace") || strings.HasPrefix(command, "delete namespace") {
							if user == controlplane.Admin {
								continue // a namespace would not go without its controller
							}
						}
						command = strings.NewReplacer("NAMESPACE", namespace, "USER", string(user)).Replace(command)
						*way.said = append(*way.said, command+"\n"+kubectl(way.kubeconfig, command))
					}
				}
				allowed := 0
				for i := range direct {
					if direct[i] != mirrored[i] {
						t.Errorf("the cluster says to kubectl %s\nand through the mirror to kubectl %s", direct[i], mirrored[i])
					}
					if strings.Contains(mirrored[i], "pod/applied created") {
						allowed++
					}
				}
				if may := user == controlplane.Admin || user == controlplane.NamespacedUser && namespace == controlplane.Namespace; may != (allowed == 1) {
					t.Errorf("in %s, %d of 1 were allowed to create a pod", namespace, allowed)
				}
			}
		})
	}
}
