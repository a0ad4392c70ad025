package deploy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// stage is a stage of a Dockerfile, as printed by test/tools/dockerfile.
type stage struct {
	Name, From string
	Commands   []struct {
		Name  string
		Args  []string
		Shell bool
	}
}

func dockerfile(t *testing.T) []stage {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", root+"/test/tools", "./dockerfile", "../../Dockerfile")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var stages []stage
	if err := json.Unmarshal(out, &stages); err != nil {
		t.Fatal(err)
	}
	return stages
}

// The image has a static program, for an unprivileged user, and nothing else.
func TestDockerfile(t *testing.T) {
	stages := dockerfile(t)
	if len(stages) != 2 || stages[1].From != "scratch" {
		t.Fatalf("%+v", stages)
	}
	mod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod); stages[0].From != "golang:"+string(want[1]) {
		t.Errorf("built with %s, go.mod wants Go %s", stages[0].From, want[1])
	}
	last := map[string]string{}
	for _, c := range stages[1].Commands {
		switch c.Name {
		case "copy":
			if c.Args[0] != "--from="+stages[0].Name {
				t.Errorf("the image has files that were not built: %v", c.Args)
			}
		case "user", "entrypoint", "cmd":
			if c.Shell {
				t.Errorf("%s wants a shell", c.Name)
			}
		default:
			t.Errorf("%s in an image of scratch", c.Name)
		}
		last[c.Name] = strings.Join(c.Args, " ")
	}
	if last["user"] != "65532:65532" || last["entrypoint"] != "/tidings" || last["cmd"] != "serve" {
		t.Errorf("%v", last)
	}
}

// image builds the program by the Dockerfile's own commands and puts the files of the
// image into a directory.
func image(t *testing.T) (dir string) {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	for _, c := range dockerfile(t)[0].Commands {
		if c.Name != "run" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(strings.Join(c.Args, " "), "/out/", out+"/"))
		cmd.Dir = root
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v: %s", c.Args, err, said)
		}
	}
	program, err := os.ReadFile(filepath.Join(out, "tidings"))
	if err != nil {
		t.Fatal(err)
	}
	binary, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program is not static: %v", p.Type)
		}
	}
	t.Logf("the program has %.1f MB", float64(len(program))/1e6)
	put(t, dir, "tidings", program, 0o555)
	return dir
}

func put(t *testing.T, root, name string, content []byte, mode fs.FileMode) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}

// contained runs the image as a container engine does: in its own read-only root, as
// the user of the image.
func contained(t *testing.T, root string, args []string, env ...string) *exec.Cmd {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		t.Cleanup(func() { _ = os.Chmod(path, 0o755) })
		return os.Chmod(path, 0o555)
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/tidings", args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		// A user namespace allows an unprivileged user to change the root.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.Credential.NoSetGroups = true
	}
	return cmd
}

// The image works as deployed: as its user, with the arguments of the Deployment, the
// token of the ServiceAccount, its rights, and the certificate from a Secret.
func TestTheImageRunsAsDeployed(t *testing.T) {
	cp := controlplane.Shared(t)
	mustKubectl(t, cp, "apply", "--server-side", "-f", folder+"/rbac.yaml")
	root := image(t)
	config := cp.AdminConfig()
	api, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	const account = "var/run/secrets/kubernetes.io/serviceaccount/"
	put(t, root, account+"token", []byte(strings.TrimSpace(mustKubectl(t, cp, "create", "token", "tidings", "-n", "tidings"))), 0o444)
	put(t, root, account+"ca.crt", config.CAData, 0o444)
	put(t, root, account+"namespace", []byte("tidings"), 0o444)
	cert, key, err := certutil.GenerateSelfSignedCertKey("tidings.tidings.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "tls/tls.crt", cert, 0o444)
	put(t, root, "tls/tls.key", key, 0o444)

	container := deployment(t, manifests(t, cp)).Spec.Template.Spec.Containers[0]
	args := slices.Clone(container.Args)
	listen := slices.Index(args, "--listen=:8443")
	if listen < 0 || container.Ports[0].ContainerPort != 8443 {
		t.Fatalf("%v does not listen where the Service looks", args)
	}
	args[listen] = "--listen=127.0.0.1:0"
	cmd := contained(t, root, args, "KUBERNETES_SERVICE_HOST="+api.Hostname(), "KUBERNETES_SERVICE_PORT="+api.Port(), "GOMEMLIMIT="+container.Env[0].Value)
	address := run(t, cmd)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "tidings.tidings.svc"}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	get := func(path, token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	// Like the kubelet, wait until it is ready: it is about to connect to the API server.
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if code, _ := get(container.ReadinessProbe.HTTPGet.Path, ""); code == http.StatusOK {
			break
		}
	}
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{container.LivenessProbe.HTTPGet.Path, "", 200}, {container.ReadinessProbe.HTTPGet.Path, "", 200}, {"/core/v1/namespaces", "admin-token", 200},
		{"/api/v1/namespaces", "admin-token", 200}, {"/core/v1/namespaces", "nobody-token", 403}, {"/core/v1/namespaces", "", 401}, {"/core/v1/secrets", "admin-token", 403},
	} {
		if code, body := get(c.path, c.token); code != c.want || c.token == "admin-token" && code == 200 && !strings.Contains(body, "kube-system") {
			t.Errorf("%s as %q: %d %s", c.path, c.token, code, body)
		}
	}
	if uid, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)); err != nil || os.Getuid() == 0 && !strings.Contains(string(uid), "Uid:\t65532\t65532\t65532\t65532") {
		t.Errorf("it runs as %v %s", err, uid)
	}
}

// run starts a server and returns its address. The server must end without an error at
// the end of the test.
func run(t *testing.T, cmd *exec.Cmd) (address string) {
	t.Helper()
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("this machine lets nobody make a user namespace: %v", err)
		}
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		w.Close()
	}()
	found := make(chan string, 1)
	said := make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines := bufio.NewScanner(r); lines.Scan(); {
			fmt.Fprintln(&all, lines.Text())
			if _, at, ok := strings.Cut(lines.Text(), "msg=serving url=https://"); ok {
				at, _, _ = strings.Cut(at, " ")
				found <- at
			}
		}
		said <- all.String()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err, all := <-ended, <-said; err != nil || strings.Contains(all, "-token") {
			t.Errorf("it ends with %v, having said %s", err, all)
		}
	})
	select {
	case address = <-found:
	case all := <-said:
		said <- all
		t.Fatalf("it does not serve: %s", all)
	}
	if host, _, err := net.SplitHostPort(address); err != nil || host != "127.0.0.1" {
		t.Fatalf("it serves on %s", address)
	}
	return address
}
