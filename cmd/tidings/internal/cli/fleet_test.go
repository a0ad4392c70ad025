//go:build unix

package cli_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// natsServer starts a NATS server that only the tests reach.
func natsServer(t testing.TB) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{ServerName: "one", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

func TestFleet(t *testing.T) {
	at := []string{"--nats", natsServer(t).ClientURL()}
	for _, c := range []struct{ args, out, errs string }{
		{"fleet", "", "No clusters are published.\n"},
		{"fleet -o json", "[]\n", ""},
		{"fleet add prod eu/west --stream-size 64Mi", "cluster prod added\ncluster eu/west added\n", ""},
		{"fleet", "CLUSTER   PUBLISHER   LAST    MESSAGES   LOG   SNAPSHOTS   REPLICAS\neu/west   none yet    never   0          0     0           1\nprod      none yet    never   0          0     0           1\n", ""},
		{"fleet remove prod", "cluster prod removed\n", ""},
		{"fleet remove prod", "", "remove cluster prod: it has no streams"},
		{"fleet -o yaml", "", "--output yaml: leave it out, or choose json"},
		{"fleet add prod --stream-replicas 2", "", "--stream-replicas 2: give 1, 3 or 5"},
		{"fleet add prod --stream-size 1k", "", "--stream-size"},
		{"fleet add", "", "requires at least 1 arg"},
	} {
		out, errs, code := runIn(t.Context(), append(strings.Fields(c.args), at...)...)
		if out != c.out || !strings.Contains(errs, c.errs) || (code != 0) != (c.errs != "" && c.out == "" && !strings.HasPrefix(c.errs, "No ")) {
			t.Errorf("%s: %d, %q, %q", c.args, code, out, errs)
		}
	}
	if _, errs, code := runIn(t.Context(), "fleet"); code == 0 || !strings.Contains(errs, "say with --nats at which URL NATS is") {
		t.Errorf("%d, %q", code, errs)
	}
	if _, errs, code := runIn(t.Context(), "fleet", "--nats", "nats://127.0.0.1:1"); code == 0 || !strings.Contains(errs, "NATS: ") {
		t.Errorf("%d, %q", code, errs)
	}
	for _, c := range []struct{ args, errs string }{
		{"serve --from nats:4222", "--from nats:4222: give a URL such as nats://nats:4222"},
		{"serve --publish nats://x --from nats://x", "cannot be combined"},
		{"serve --from nats://x --passthrough", "cannot be combined"},
		{"serve --stream embedded", "--stream needs --demo"},
		{"serve --demo --stream elsewhere", "--stream elsewhere: there is embedded only"},
		{"serve --demo --clusters 3", "--clusters needs --stream"},
		{"serve --publish nats://x --publish-as y --context a --context b", "--publish-as names one cluster"},
		{"serve --publish nats://x --nats-nkey none", "none"},
	} {
		if _, errs, code := runIn(t.Context(), strings.Fields(c.args)...); code == 0 || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: %d, %q", c.args, code, errs)
		}
	}
}

// The demo is published and followed in one process.
func TestServeEmbeddedStream(t *testing.T) {
	s := (&world{TB: t}).begin("serve", "--demo", "--stream", "embedded", "--clusters", "2", "--listen", "127.0.0.1:0", "-v", "info")
	_, url, _ := strings.Cut(s.announced(), "msg=serving url=")
	url = strings.Fields(url)[0]
	for _, name := range []string{"demo-1", "demo-2"} {
		eventually(t, name, func() error {
			resp, err := http.Get(url + "/clusters/" + name + "/readyz")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		})
		out, errs, code := runIn(t.Context(), "get", "deploy", "cart", "-n", "shop", "-o", "name", "--server", url+"/clusters/"+name)
		if out != "deployment.apps/cart\n" {
			t.Errorf("%d, %q, %q", code, out, errs)
		}
	}
}

// A mirror publishes a real cluster. Two others follow it, and answer an unmodified kubectl as the
// API server does, each caller with the rights of the cluster.
func TestRealReplicas(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	broker := natsServer(t)
	r.kubectl("", "create", "namespace", "fleet")
	r.kubectl(`{apiVersion: v1, kind: ConfigMap, metadata: {name: here, namespace: fleet}, data: {a: "1"}}`, "create", "-f-")
	r.kubectl(`{apiVersion: v1, kind: Secret, metadata: {name: canary, namespace: fleet}, stringData: {a: canary-of-the-fleet}}`, "create", "-f-")

	r.begin("serve", "--listen", "127.0.0.1:0", "-v", "info", "--publish", broker.ClientURL(), "--resource", "configmaps", "--resource", "*").announced()
	var replicas []string // the kubeconfigs that lead to them
	for range 2 {
		written := filepath.Join(t.TempDir(), "kubeconfig")
		s := (&world{TB: t}).begin("serve", "--listen", "127.0.0.1:0", "-v", "info", "--from", broker.ClientURL(), "--authentication", "upstream", "--write-kubeconfig", written)
		s.announced()
		replicas = append(replicas, written)
	}
	kubectl := func(kubeconfig string, user controlplane.User, args ...string) (string, error) {
		args = append(args, "--token", r.cp.Config(user).BearerToken)
		out, err := r.cp.KubectlCommand(t.Context(), kubeconfig, args...).CombinedOutput()
		return string(out), err
	}
	eventually(t, "the replicas", func() error {
		for _, replica := range replicas {
			if out, err := kubectl(replica, controlplane.Admin, "get", "cm", "here", "-n", "fleet", "-o", "name"); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	})
	original := r.cp.Kubeconfig(controlplane.Admin)
	for _, user := range []controlplane.User{controlplane.Admin, controlplane.NamespacedUser, controlplane.Nobody} {
		for i, args := range []string{
			"get cm -n fleet -o yaml", "get cm -A -o json", "get cm -n " + controlplane.Namespace, "get ns -o name", "get cm here -n fleet -o json", "get cm nosuch -n fleet",
			"get deploy,sa -n fleet -o yaml", "auth can-i get pods -n " + controlplane.Namespace, "auth whoami", "auth can-i list pods -A", "explain configmaps.data", "version",
		} {
			want, wantErr := kubectl(original, user, strings.Fields(args)...)
			i %= len(replicas)
			got, err := kubectl(replicas[i], user, strings.Fields(args)...)
			if strings.Contains(args, "-A") || strings.Contains(args, "-n fleet") && wantErr == nil { // other tests write, too
				continue
			}
			if got != want || (err == nil) != (wantErr == nil) {
				t.Errorf("replica %d, %s: kubectl %s\n%s\nand not\n%s", i, user, args, got, want)
			}
		}
		for i, replica := range replicas {
			for _, args := range []string{"get secrets -A -o yaml", "get secret canary -n fleet -o yaml", "get --raw /api/v1/namespaces/fleet/secrets/canary", "get --raw /tidings/fresh", "get secrets -A -w"} {
				if got, err := kubectl(replica, user, strings.Fields(args)...); err == nil || strings.Contains(got, "canary-of") || strings.Contains(got, base64.StdEncoding.EncodeToString([]byte("canary-of"))[:8]) {
					t.Errorf("replica %d, %s: kubectl %s: %s", i, user, args, got)
				}
			}
		}
	}
	// What is read without a resourceVersion is what the cluster has.
	for i := range 20 {
		value := fmt.Sprint(i)
		r.kubectl("", "patch", "cm", "here", "-n", "fleet", "-p", `{"data":{"a":"`+value+`"}}`)
		if got, err := kubectl(replicas[i%2], controlplane.Admin, "get", "cm", "here", "-n", "fleet", "-o", "jsonpath={.data.a}"); got != value {
			t.Errorf("%q instead of %s (%v)", got, value, err)
		}
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}
