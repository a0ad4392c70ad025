package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// coldStart is the start of a mirror of several resources of a real API server, from
// nothing until it can answer for all of them.
var coldStart = line{
	name: "coldstart",
	what: "Cold start with %d pods, 3.8 times as many Events, and 14 other resources of a real kube-apiserver",
	size: 10_000, quick: 20,
	setup: func(ctx context.Context, size int) ([]string, func() error, error) {
		if _, err := buildTidings(ctx); err != nil {
			return nil, nil, err
		}
		cp, err := controlplane.Launch(ctx)
		if err != nil {
			return nil, nil, err
		}
		if err := fillColdStart(ctx, cp.AdminConfig(), size); err != nil {
			return nil, nil, errors.Join(err, cp.Stop())
		}
		// A server, not a mirror of it: the sides start that.
		return []string{"KUBECONFIG=" + cp.Kubeconfig(controlplane.Admin),
			fmt.Sprintf("SERVED_PIDS=%d %d 0", cp.PID("kube-apiserver"), cp.PID("etcd"))}, cp.Stop, nil
	},
	claims: []claim{
		{19, "cold start of 16 resources, 10,000 pods and 38,000 Events among them, until ready: s", "wall s", "tidings serve, all", "client-go, all", atMost(1.8)},
		{19, "the same, CPU s of kube-apiserver and etcd", "CPU s behind", "tidings serve, all", "client-go, all", target{}},
		{19, "then the first list with limit=100, of the newest state: ms", "first page ms", "tidings serve, all", nobody, target{}},
		{19, "the cold start, pods alone: s", "wall s", "tidings serve, pods", "client-go, pods", target{}},
		{19, "the same, Events alone: s", "wall s", "tidings serve, events", "client-go, events", target{}},
	},
	sides: []side{
		{"client-go, all", clientGoStart(coldResources...)},
		{"tidings serve, all", serveStart(coldResources...)},
		{"client-go, pods", clientGoStart(coldResources[0])},
		{"tidings serve, pods", serveStart(coldResources[0])},
		{"client-go, events", clientGoStart(coldResources[1])},
		{"tidings serve, events", serveStart(coldResources[1])},
	},
}

var coldResources = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "events"},
	{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "nodes"}, {Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "persistentvolumeclaims"}, {Version: "v1", Resource: "serviceaccounts"},
	{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"}, {Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"}, {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
}

// clientGoStart starts client-go's informers of these resources: typed, in protobuf,
// with the limit on requests that is client-go's own lifted.
func clientGoStart(resources ...schema.GroupVersionResource) func(context.Context, int) (figures, error) {
	return func(ctx context.Context, _ int) (figures, error) {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return nil, err
		}
		return untilReady(ctx, config, func() (float64, error) {
			client, err := kubernetes.NewForConfig(inProtobuf(config))
			if err != nil {
				return 0, err
			}
			factory := informers.NewSharedInformerFactory(client, 0)
			for _, r := range resources {
				if _, err := factory.ForResource(r); err != nil {
					return 0, err
				}
			}
			factory.Start(ctx.Done())
			for t, synced := range factory.WaitForCacheSync(ctx.Done()) {
				if !synced {
					return 0, fmt.Errorf("client-go did not sync %v", t)
				}
			}
			return cpu(), nil
		})
	}
}

// serveStart starts tidings serve as a user would, and waits until it says that it is
// ready.
func serveStart(resources ...schema.GroupVersionResource) func(context.Context, int) (figures, error) {
	var args []string
	for _, r := range resources {
		args = append(args, "--resource", strings.TrimSuffix(r.Resource+"."+r.Version+"."+r.Group, "."))
	}
	return func(ctx context.Context, _ int) (figures, error) { return measureServe(ctx, args...) }
}

// measureServe measures the start of tidings serve, and the first request for a page of the
// newest state of its first resource. args begin with --resource.
func measureServe(ctx context.Context, args ...string) (figures, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, append([]string{"--kubeconfig", os.Getenv("KUBECONFIG")}, args...)...)
	if err != nil {
		return nil, err
	}
	defer s.end()
	out, err := untilReady(ctx, config, func() (float64, error) {
		if err := s.start(ctx); err != nil {
			return 0, err
		}
		return cpuOf(s.cmd.Process.Pid), nil
	})
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	resource, _, _ := strings.Cut(args[1], ".")
	_, err = s.get("/api/v1/" + resource + "?limit=100")
	out["first page ms"] = time.Since(begun).Seconds() * 1e3
	return out, err
}

// server is a process of tidings serve.
type server struct {
	cmd *exec.Cmd
	dir string
	log bytes.Buffer
}

func newServer(ctx context.Context, args ...string) (*server, error) {
	program, err := buildTidings(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tidings-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	s.cmd = exec.CommandContext(ctx, program, append([]string{"serve", "--listen", "127.0.0.1:0", "--write-kubeconfig", s.kubeconfig()}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	return s, nil
}

func (s *server) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// start starts the process and waits until it says that it is ready.
func (s *server) start(ctx context.Context) error {
	if err := s.cmd.Start(); err != nil {
		return err
	}
	err := await(ctx, 2*time.Minute, func() error {
		_, err := s.get("/readyz")
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.log.String())
	}
	return nil
}

// url is that of the server, without the part of a cluster.
func (s *server) url() (string, error) {
	mirror, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		return "", err
	}
	base, _, _ := strings.Cut(mirror.Host, "/clusters/")
	return base, nil
}

// sum returns the values of a metric, added up.
func (s *server) sum(metric string) (total float64, err error) {
	body, err := s.get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, metric+"{") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", line, err)
			}
			total += n
		}
	}
	return total, nil
}

func (s *server) get(path string) ([]byte, error) {
	base, err := s.url()
	if err != nil {
		return nil, err
	}
	resp, err := http.Get(base + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return body, err
}

// end kills the process, if it has not ended.
func (s *server) end() {
	if s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// untilReady measures a start, which returns the CPU time of the mirror.
func untilReady(ctx context.Context, config *rest.Config, start func() (float64, error)) (figures, error) {
	upstream, err := askedOf(false)
	if err != nil {
		return nil, err
	}
	if err := quiet(ctx, upstream); err != nil {
		return nil, err
	}
	before, err := requests(ctx, config)
	if err != nil {
		return nil, err
	}
	api, etcd := upstream.spent()
	begun := time.Now()
	mirror, err := start()
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	apiNow, etcdNow := upstream.spent()
	now, err := requests(ctx, config)
	return figures{
		"wall s": took.Seconds(), "CPU s of the mirror": mirror, "CPU s behind": apiNow - api + etcdNow - etcd,
		"lists": now.lists - before.lists, "lists of pods": now.podLists - before.podLists, "watches": now.watches - before.watches,
	}, err
}

// quiet waits until a server has nothing to do: the garbage of what was before is collected.
func quiet(ctx context.Context, server asked) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for last := -1.0; ; {
		own, behind := server.spent()
		if last >= 0 && own+behind-last < 0.1 {
			return nil
		}
		last = own + behind
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("it does not come to rest: %w", ctx.Err())
		}
	}
}

// requestCounts are the lists that a kube-apiserver has answered, and the watches that are
// open. The API server lists some resources itself, but no pods.
type requestCounts struct{ lists, podLists, watches float64 }

func requests(ctx context.Context, config *rest.Config) (out requestCounts, err error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return out, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return out, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		value, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		switch {
		case strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `verb="LIST"`):
			if out.lists += value; strings.Contains(line, `resource="pods"`) {
				out.podLists += value
			}
		case strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `verb="WATCH"`):
			out.watches += value
		}
	}
	return out, nil
}

// fillColdStart creates what a cluster with so many pods has.
func fillColdStart(ctx context.Context, config *rest.Config, size int) error {
	pods := samplepods.Clone(size, 1)
	if err := samplepods.Create(ctx, config, pods, 16); err != nil {
		return err
	}
	if err := samplepods.WriteStatus(ctx, config, pods, 16); err != nil {
		return err
	}
	if err := createConfigMaps(ctx, config, max(size/20, 10)); err != nil {
		return err
	}
	if err := createSlices(ctx, config, min(size/20, 250)); err != nil {
		return err
	}
	return createEvents(ctx, config, pods, size*38/10)
}

// createEvents creates the events of a kubelet about these pods.
func createEvents(ctx context.Context, config *rest.Config, pods []corev1.Pod, n int) error {
	core, err := coreclient.NewForConfig(inProtobuf(config))
	if err != nil {
		return err
	}
	reasons := []struct{ reason, message string }{
		{"Pulled", "Container image %q already present on machine"},
		{"Created", "Created container of image %s"},
		{"Started", "Started container of image %s"},
		{"Unhealthy", "Readiness probe failed: HTTP probe of a container of image %s failed with statuscode: 503"},
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error {
			pod, what := &pods[i%len(pods)], reasons[i/len(pods)%len(reasons)]
			at := metav1.NewTime(time.Now().Truncate(time.Second))
			container := pod.Spec.Containers[0]
			_, err := core.Events(pod.Namespace).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", pod.Name, i)},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, APIVersion: "v1",
					ResourceVersion: pod.ResourceVersion, FieldPath: "spec.containers{" + container.Name + "}"},
				Reason: what.reason, Message: fmt.Sprintf(what.message, container.Image), Type: corev1.EventTypeNormal,
				Source:         corev1.EventSource{Component: "kubelet", Host: pod.Spec.NodeName},
				FirstTimestamp: at, LastTimestamp: at, Count: 1, ReportingController: "kubelet", ReportingInstance: pod.Spec.NodeName,
			}, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}
