package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// kubectls runs kubectl against a server, and against its cluster.
type kubectls struct {
	testing.TB
	cp   *controlplane.Cluster
	url  string
	ca   []byte
	home string
}

// arn is the name of a cluster in a kubeconfig of EKS.
const arn = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"

// withKubectl serves a mirror of the real cluster over TLS, because kubectl sends no
// credentials without it. The cluster has two names.
func withKubectl(t *testing.T, opts server.Options) *kubectls {
	t.Helper()
	cp := controlplane.Shared(t)
	logger := slog.New(slog.DiscardHandler)
	opts.Logger = logger
	m, err := mirror.New(mirror.Options{Logger: logger, Default: "real"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := m.Set(t.Context(), map[string]*rest.Config{"real": cp.AdminConfig(), arn: cp.AdminConfig()}); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(m, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	https := httptest.NewUnstartedServer(s.Handler())
	https.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	https.StartTLS()
	t.Cleanup(https.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	return &kubectls{TB: t, cp: cp, url: https.URL, ca: ca, home: t.TempDir()}
}

// command is kubectl for a user, at a prefix of the server or, with "direct", at the
// cluster itself.
func (k *kubectls) command(ctx context.Context, user controlplane.User, at string, args ...string) *exec.Cmd {
	k.Helper()
	kubeconfig := k.cp.Kubeconfig(user)
	if at != "direct" {
		kubeconfig = filepath.Join(k.TempDir(), "kubeconfig")
		config := &rest.Config{Host: k.url + at, BearerToken: k.cp.Config(user).BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: k.ca}}
		if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
			k.Fatal(err)
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(k.cp.BinDir(), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+k.home)
	return cmd
}

func (k *kubectls) run(user controlplane.User, at, command string) string {
	k.Helper()
	cmd := k.command(k.Context(), user, at, strings.Fields(command)...)
	cmd.Stdin = bytes.NewReader(nil)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

var (
	// aging is what differs from one second to the next, and
	aging = regexp.MustCompile(`\b\d+[smhdy](\d+[smhd])?\b`)
	// columns are as wide as it.
	columns = regexp.MustCompile(`(\S) {2,}`)
)

// ageless removes from kubectl's output what changes from one second to the next.
func ageless(said string) string {
	return columns.ReplaceAllString(aging.ReplaceAllString(said, "*"), "$1  ")
}

// kubectl prints the same for a mirror as for the cluster.
func TestKubectlReads(t *testing.T) {
	k := withKubectl(t, server.Options{})
	pods := samplepods.Load().Items[:5]
	for i := range pods {
		pods[i].Namespace, pods[i].OwnerReferences, pods[i].Finalizers = "kubectl", nil, nil
	}
	if err := samplepods.Create(t.Context(), k.cp.AdminConfig(), pods, 4); err != nil {
		t.Fatal(err)
	}
	if err := samplepods.WriteStatus(t.Context(), k.cp.AdminConfig(), pods, 4); err != nil {
		t.Fatal(err)
	}
	k.run(controlplane.Admin, "direct", "create deployment web --image=x --replicas=2 -n kubectl")
	for _, command := range []string{
		"get pods -n kubectl", "get pods -n kubectl -o wide", "get pods -A --sort-by=.metadata.name", "get po " + pods[0].Name + " -n kubectl -o yaml", "get pods -n kubectl -o name",
		"get deploy,ns", "get deploy web -n kubectl -o wide", "get all -n kubectl", "get pods -n kubectl --show-labels", "get pods -n kubectl -o custom-columns=N:.metadata.name,P:.status.phase",
		"get clusterroles", "get roles -A", "get flowschemas", "get apiservices", "get nothing", "get pods nobody -n kubectl", "get events -A",
		"describe pod " + pods[0].Name + " -n kubectl", "describe deploy web -n kubectl", "describe ns kubectl", "explain deploy.spec.strategy", "explain pods --recursive",
		"api-versions", "version", "auth can-i list pods", "auth can-i * *", "get pods -n kubectl -o json", "get deploy -A -o wide", "get cm,sa -n kubectl -o yaml", "describe nodes", "wait deploy/web -n kubectl --for=jsonpath={.spec.replicas}=2", "wait pod/" + pods[0].Name + " -n kubectl --for=jsonpath={.spec.nodeName}=" + pods[0].Spec.NodeName,
		"get --raw /healthz", "get --raw /livez", "get --raw /readyz",
	} {
		want := ageless(k.run(controlplane.Admin, "direct", command))
		if fails := command == "get nothing" || command == "get pods nobody -n kubectl"; fails != strings.Contains(want, "exit status") {
			t.Errorf("kubectl %s says of the cluster itself\n%s", command, want)
		}
		for _, at := range []string{"", "/clusters/real"} {
			if have := ageless(k.run(controlplane.Admin, at, command)); have != want {
				t.Errorf("kubectl %s says\n%s\nand of the mirror at %q\n%s", command, want, at, have)
			}
		}
	}
	if got := k.run(controlplane.Admin, "", "api-resources --verbs=list --no-headers -o name"); !strings.Contains(got, "deployments.apps\n") || strings.Contains(got, "tokenreviews") {
		t.Error(got)
	}
	if got := k.run(controlplane.Admin, "/clusters/real", "get --raw /readyz?verbose"); !strings.Contains(got, "[+]ping ok\n") || !strings.HasSuffix(got, "readyz check passed\n") {
		t.Error(got)
	}
	// Other requests than reads are refused with a hint.
	for _, command := range []string{"delete pod " + pods[0].Name + " -n kubectl", "create ns x", "scale deploy web --replicas=3 -n kubectl", "label deploy web a=b -n kubectl"} {
		if got := k.run(controlplane.Admin, "", command); !strings.Contains(got, "exit status 1") || !strings.Contains(got, "mirror") {
			t.Errorf("kubectl %s: %s", command, got)
		}
	}
}

// A cluster with slashes in its name works like any other, whether its path is escaped,
// as --write-kubeconfig writes it, or not: client-go joins paths to the server's, which
// unescapes it.
func TestClientsOfAClusterWithASlashInItsName(t *testing.T) {
	k := withKubectl(t, server.Options{})
	for i, at := range []string{"/clusters/" + url.PathEscape(arn), "/clusters/" + arn} {
		for _, command := range []string{"get ns", "get ns kube-system -o yaml", "describe ns default", "get clusterroles -o name", "explain deploy.spec.strategy", "api-versions", "get nothing"} {
			want, have := ageless(k.run(controlplane.Admin, "direct", command)), ageless(k.run(controlplane.Admin, at, command))
			if have != want {
				t.Errorf("kubectl %s says\n%s\nand of the mirror at %q\n%s", command, want, at, have)
			}
		}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: k.url + at, BearerToken: "admin-token", TLSClientConfig: rest.TLSClientConfig{CAData: k.ca}})
		if err != nil {
			t.Fatal(err)
		}
		informer := informers.NewSharedInformerFactory(client, 0).Core().V1().ConfigMaps().Informer()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			informer.RunWithContext(ctx)
		}()
		name := fmt.Sprint("slash-", i)
		eventually(t, "the informer has synced", informer.HasSynced)
		k.run(controlplane.Admin, "direct", "create configmap "+name+" -n team-a")
		eventually(t, "the informer is told what happens", func() bool {
			_, there, err := informer.GetStore().GetByKey("team-a/" + name)
			return there && err == nil
		})
		cancel()
		<-done
	}
	if got, want := k.run(controlplane.Admin, "", "get --raw /clusters"), `"path":"/clusters/arn:aws:eks:eu-west-1:123456789012:cluster%2Fprod"`; !strings.Contains(got, want) {
		t.Errorf("%s\nlacks %s", got, want)
	}
}

func TestKubectlWatches(t *testing.T) {
	k := withKubectl(t, server.Options{})
	k.run(controlplane.Admin, "direct", "create configmap seen -n team-a")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := k.command(ctx, controlplane.Admin, "/clusters/real", "get", "configmaps", "-n", "team-a", "-w", "--field-selector=metadata.name=seen")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	lines := bufio.NewScanner(out)
	for _, want := range []string{"NAME DATA AGE", "seen 0 ", "seen 1 "} {
		if !lines.Scan() {
			t.Fatal("the watch has ended")
		}
		if got := strings.Join(strings.Fields(lines.Text()), " "); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if want == "seen 0 " {
			k.run(controlplane.Admin, "direct", `patch configmap seen -n team-a -p {"data":{"a":"b"}}`)
		}
	}
}

// With passthrough the mirror answers reads, and the cluster everything else, within
// the caller's rights.
func TestKubectlWithPassthrough(t *testing.T) {
	k := withKubectl(t, server.Options{Passthrough: true})
	for user, may := range map[controlplane.User]bool{controlplane.Admin: true, controlplane.NamespacedUser: true, controlplane.Nobody: false} {
		name := "through-" + string(user)
		for _, command := range []string{"create configmap " + name + " -n team-a", "label configmap " + name + " a=b -n team-a", "delete configmap " + name + " -n team-a"} {
			got := k.run(user, "/clusters/real", command)
			if may == strings.Contains(got, "exit status") || !may && !strings.Contains(got, `User "nobody" cannot`) && !strings.Contains(got, "NotFound") {
				t.Errorf("%s: kubectl %s: %s", user, command, got)
			}
		}
		if got := k.run(user, "", "auth whoami -o name"); strings.Contains(got, "exit status") {
			t.Errorf("%s: %s", user, got)
		}
		if got, want := k.run(user, "", "auth can-i create configmaps -n team-a"), map[bool]string{true: "yes\n", false: "no\n"}[may]; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", user, got)
		}
	}
	const logs = "logs nothing -n team-a"
	if got, want := k.run(controlplane.NamespacedUser, "", logs), k.run(controlplane.NamespacedUser, "direct", logs); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// A new resource is there as soon as it is made.
	crd := filepath.Join(k.home, "crd.yaml")
	if err := os.WriteFile(crd, []byte(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.through.example.com"}, "spec": {
		"group": "through.example.com", "scope": "Cluster", "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
		"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"apply -f " + crd, "wait crd/things.through.example.com --for=condition=Established"} {
		if got := k.run(controlplane.Admin, "", command); strings.Contains(got, "exit status") {
			t.Fatalf("kubectl %s: %s", command, got)
		}
	}
	eventually(t, "the new resource is served", func() bool {
		return strings.Contains(k.run(controlplane.Admin, "", "get things"), "No resources found")
	})
	if got := k.run(controlplane.Admin, "", "delete crd things.through.example.com"); !strings.Contains(got, "deleted") {
		t.Error(got)
	}
}

// A shutdown ends forwarded requests that would go on, such as the watch of a resource
// that is not mirrored.
func TestShutdownEndsForwardedWatches(t *testing.T) {
	cp := controlplane.Shared(t)
	logger := slog.New(slog.DiscardHandler)
	m, err := mirror.New(mirror.Options{Resources: []string{"pods"}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := m.Set(t.Context(), map[string]*rest.Config{"real": cp.AdminConfig()}); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(m, server.Options{Passthrough: true, Logger: logger, ShutdownTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ask := func(method, path, body string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+cp.AdminConfig().BearerToken)
		req.Header.Set("Content-Type", "application/json")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	watch := ask(http.MethodGet, "/api/v1/namespaces/default/configmaps?watch=true", "")
	defer watch.Body.Close()
	created := ask(http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata": {"name": "handed-on"}}`)
	created.Body.Close()
	if watch.StatusCode != http.StatusOK || created.StatusCode != http.StatusCreated {
		t.Fatalf("%s, %s", watch.Status, created.Status)
	}
	events := bufio.NewReader(watch.Body)
	for { // of the configmaps that are there, to the one that came
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"handed-on"`) {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
