//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// said is what a command printed.
type said struct {
	Out, Err string
	Code     int
}

var (
	// aging is text that differs from one second to the next.
	aging = regexp.MustCompile(`\b\d+[smhdy](\d+[smhd])?\b`)
	// columns are as wide as their widest cell.
	columns = regexp.MustCompile(`(\S) {2,}`)
)

func (o said) ageless() said {
	for _, text := range []*string{&o.Out, &o.Err} {
		*text = strings.ReplaceAll(*text, "cli.test", "kubectl") // the name of this program
		*text = columns.ReplaceAllString(aging.ReplaceAllString(*text, "*"), "$1  ")
	}
	return o
}

// sameAsKubectl are arguments of get with which tidings and kubectl print the same. {}
// is the name of a pod, DIR a folder with files.
var sameAsKubectl = []string{
	// tables
	"pods", "pods -o wide", "pods -A", "pods -A -n default", "po {}", "pods {} -o wide", "pods --no-headers", "pods -o wide -A --no-headers",
	"pods --show-labels", "pods -L app,k8s-app -L tier", "pods -L app --show-labels -o wide", "pods --show-kind", "pods -l app", "pods -l app!=x,tier", "pods --field-selector status.phase=Running",
	"pods,deploy", "pods,deploy --no-headers", "deploy,pods -o wide -A", "pod/{} deploy/web", "all", "all -A", "ns", "nodes,pods -A", "ns,pods -A --show-labels", "clusterroles view edit", "apiservices", "crd", "roles -A",
	"pods --chunk-size=2", "pods --chunk-size=0", "pods --server-print=false", "pods -A --server-print=false -L app", "comets", "comets -o wide", "comets,pods", "deployments.v1.apps", "deployments.apps", "Deployment", "pods -n none", "nodes", "cm,secrets -n none",
	"pods --sort-by .metadata.name", "pods --sort-by={.spec.nodeName}", "pods --sort-by=metadata.creationTimestamp --no-headers", "pods -A --sort-by=.metadata.uid -o wide", "deploy web --subresource status", "deploy web --subresource=scale",
	// other outputs
	"pods -o name", "pods,deploy -o name", "po {} -o name", "po {} -o json", "po {} -o yaml", "po {} -o kyaml", "pods -o json", "pods -o yaml", "pods,deploy -o yaml", "deploy web -o yaml --show-managed-fields", "cm -o yaml -n none", "cm -o json -n none", "cm -n none -o name",
	"pods -o jsonpath={.items[*].metadata.name}", `pods -o jsonpath={range.items[*]}{.metadata.name}{"\n"}{end}`, "pods -o jsonpath={.nope}", "po {} -o jsonpath={.spec.containers[0].image}", "pods -o jsonpath-file=DIR/jsonpath", "pods -o jsonpath-as-json={.items[*].metadata.name}", "pods -o jsonpath={",
	"pods -o go-template={{len(.items)}}", "pods -o go-template-file=DIR/template", "pods --template={{.kind}}", "pods -o template --template={{.kind}}", "pods -o go-template={{.nope.nope}}", "pods -o go-template={{",
	"pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,X:.nope", "pods -o custom-columns=NAME:.metadata.name --no-headers", "pods -o custom-columns-file=DIR/columns", "pods,deploy -o custom-columns=N:.metadata.name", "pods -o custom-columns=NAME", "pods -o custom-columns=", "pods -o custom-columns=N:.metadata.name --sort-by=.spec.nodeName", "pods -o name --sort-by=.metadata.uid",
	// files
	"-f DIR/web.yaml", "-f DIR/web.yaml -o name", "-f DIR/web.yaml -o yaml", "-f DIR/files", "-f DIR/files -R", "-f DIR/files -R -o name", "-k DIR/files", "-f DIR/none.yaml", "-f DIR/web.yaml -n other", "-f DIR/gone.yaml", "-f DIR/gone.yaml --ignore-not-found",
	// not found and refused
	"pods nosuch", "pods nosuch -o json", "pods nosuch -o name", "pods {} nosuch", "pods {} nosuch -o name", "pods nosuch nosuch2", "pods nosuch --ignore-not-found", "pods nosuch -o json --ignore-not-found", "pods {} nosuch --ignore-not-found", "pods nosuch -A", "pods {} -A", "pod/nosuch deploy/web", "widgetz", "widgetz,pods",
	"pods --field-selector spec.nope=1", "pods {} -l app=x", "pods ..", "pods a/b", "pod/{} x", "pods -w nosuch", "pods,deploy -w",
	"pods -o nope", "pods -o table", "pods -o json --show-labels", "pods --output-watch-events",
	"--raw /version", "--raw /nope", "--raw x", "--raw /version pods", "--raw /version -o json", "--raw /version -w",
}

// compared has objects of several kinds in namespace "compared", and a folder with
// files.
func compared(t *testing.T) (r *real, pod, dir string) {
	r = newReal(t, controlplane.Admin)
	r.kubectl("", "create", "namespace", "compared")
	r.kubectl("", "config", "set-context", "--current", "--namespace=compared", "--kubeconfig="+r.copyKubeconfig())
	pods := samplepods.Load().Items[:5]
	for i := range pods {
		pods[i].Namespace, pods[i].OwnerReferences, pods[i].Finalizers = "compared", nil, nil
	}
	if err := samplepods.Create(t.Context(), r.cp.AdminConfig(), pods, 4); err != nil {
		t.Fatal(err)
	}
	if err := samplepods.WriteStatus(t.Context(), r.cp.AdminConfig(), pods, 4); err != nil {
		t.Fatal(err)
	}
	r.kubectl("", "create", "deployment", "web", "--image=x", "--replicas=2", "-n", "compared")
	r.kubectl("", "apply", "-f", "testdata/comets.yaml")
	r.kubectl("", "wait", "--for=condition=Established", "crd/comets.example.com")
	r.kubectl(`{apiVersion: example.com/v1, kind: Comet, metadata: {name: k, namespace: compared}, spec: {colour: red, tail: 3}}`, "create", "-f-")
	dir = t.TempDir()
	web := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: compared}}\n"
	for name, text := range map[string]string{
		"jsonpath":                 `{range .items[*]}{.metadata.name}{"\n"}{end}`,
		"template":                 `{{range .items}}{{.metadata.name}} {{end}}`,
		"columns":                  "NAME          PHASE\n.metadata.name .status.phase\n",
		"web.yaml":                 web,
		"gone.yaml":                "{apiVersion: v1, kind: ConfigMap, metadata: {name: gone}}\n",
		"files/web.yaml":           web,
		"files/sub/pod.yaml":       "{apiVersion: v1, kind: Pod, metadata: {name: " + pods[0].Name + ", namespace: compared}}\n",
		"files/kustomization.yaml": "resources: [web.yaml]\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r, pods[0].Name, dir
}

// copyKubeconfig makes the kubeconfig one of the test's own.
func (r *real) copyKubeconfig() string {
	r.Helper()
	text, err := os.ReadFile(r.kubeconfig)
	if err != nil {
		r.Fatal(err)
	}
	r.kubeconfig = filepath.Join(r.TempDir(), "kubeconfig")
	if err := os.WriteFile(r.kubeconfig, text, 0o600); err != nil {
		r.Fatal(err)
	}
	return r.kubeconfig
}

func (r *real) kubectlSays(args ...string) said {
	r.Helper()
	cmd := r.cp.KubectlCommand(r.Context(), r.kubeconfig, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.Fatal(err)
	}
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

func TestGetIsKubectls(t *testing.T) {
	r, pod, dir := compared(t)
	_, url := r.serve("--resource", "*", "--resource", "secrets")
	var group errgroup.Group
	group.SetLimit(4)
	for _, command := range sameAsKubectl {
		group.Go(func() error {
			args := strings.Fields(strings.NewReplacer("{}", pod, "DIR", dir).Replace("get " + command))
			want := r.kubectlSays(args...).ageless()
			for _, of := range []string{"cluster", "server"} {
				more := []string{"--kubeconfig", r.kubeconfig}
				if of == "server" {
					if strings.Contains(command, "--subresource") {
						continue // a mirror has none
					}
					if more = []string{"--server", url}; !strings.Contains(command, "-n ") {
						more = append(more, "-n", "compared")
					}
				}
				var have said
				have.Out, have.Err, have.Code = runIn(t.Context(), append(args, more...)...)
				if diff := cmp.Diff(want, have.ageless()); diff != "" {
					t.Errorf("get %s, of the %s: -kubectl +tidings\n%s", command, of, diff)
				}
			}
			return nil
		})
	}
	_ = group.Wait()
}

// followed are arguments of a watch of configmaps, and what is in the last line that
// it prints.
var followed = map[string]string{
	"-w":                            "last",
	"-w -A -L x":                    "last",
	"-w --output-watch-events":      "last",
	"--watch-only":                  "last",
	"-w --no-headers --show-labels": "last",
	"-w -o name":                    "last",
	"-w -o json --watch-only":       `"name": "last"`,
	"--output-watch-events -o json --watch-only":                                 "last",
	"-w -o custom-columns=N:.metadata.name,X:.data.x":                            "last",
	"-w -o custom-columns=T:.type,N:.object.metadata.name --output-watch-events": "last",
	`-w -o jsonpath={.metadata.name}{"\n"}`:                                      "last",
	`-w -o jsonpath={.type}{.object.metadata.name}{"\n"} --output-watch-events`:  "last",
	`--watch-only -o go-template={{.metadata.name}}{{"\n"}}`:                     "last",
	"-w a --show-labels":                           "end=yes",
	"-w a --show-labels --output-watch-events":     "end=yes",
	"--watch-only cm/a --show-labels --no-headers": "end=yes",
}

// Watches print the same, as things change.
func TestGetWatchIsKubectls(t *testing.T) {
	r := newReal(t, controlplane.Admin)
	r.kubectl("", "create", "namespace", "followed")
	for _, name := range []string{"a", "b"} {
		r.kubectl("", "create", "cm", name, "-n", "followed", "--from-literal=x=1")
	}
	open := func() (n int) {
		metrics := r.kubectlSays("get", "--raw", "/metrics").Out
		for _, m := range regexp.MustCompile(`(?m)^apiserver_longrunning_requests{.*resource="configmaps",scope="(namespace|cluster|resource)".*verb="WATCH".*} (\d+)$`).FindAllStringSubmatch(metrics, -1) {
			i, _ := strconv.Atoi(m[2])
			n += i
		}
		return n
	}
	before := open()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // so many programs take their time to start
	t.Cleanup(cancel)
	type pair struct {
		kubectl *bufio.Reader
		tidings *session
	}
	pairs := map[string]pair{}
	for flags := range followed {
		args := append([]string{"get", "-n", "followed"}, strings.Fields(flags)...)
		if !strings.Contains(flags, "cm/a") {
			args = slices.Insert(args, 1, "cm")
		}
		if !strings.Contains(flags, " a ") && !strings.Contains(flags, "cm/a") {
			args = append(args, "--field-selector=metadata.name!=kube-root-ca.crt,metadata.namespace=followed")
		}
		cmd := r.cp.KubectlCommand(ctx, r.kubeconfig, args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cancel(); _ = cmd.Wait() })
		pairs[flags] = pair{bufio.NewReader(out), r.begin(args...)}
	}
	for tries := 0; open() < before+2*len(pairs); tries++ {
		if tries == 300 {
			t.Fatalf("of %d watches %d have begun", 2*len(pairs), open()-before)
		}
	}
	r.kubectl("", "create", "cm", "c", "-n", "followed")
	r.kubectl("", "label", "cm", "a", "end=yes", "-n", "followed")
	r.kubectl("", "delete", "cm", "b", "-n", "followed")
	r.kubectl("", "create", "cm", "last", "-n", "followed")
	for flags, p := range pairs {
		last := followed[flags]
		var want, have said
		for !strings.Contains(want.Out, last) {
			line, err := p.kubectl.ReadString('\n')
			if want.Out += line; err != nil {
				t.Errorf("kubectl get cm %s: %v after\n%s", flags, err, want.Out)
				break
			}
		}
		for !strings.Contains(have.Out, last) {
			have.Out += p.tidings.line() + "\n"
		}
		if diff := cmp.Diff(want.ageless(), have.ageless()); diff != "" {
			t.Errorf("get cm %s: -kubectl +tidings\n%s", flags, diff)
		}
		if code := p.tidings.stop(); code != 130 {
			t.Errorf("get cm %s: interrupted, it ends with %d", flags, code)
		}
	}
}
