//go:build unix

package controlplane

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestRestartKeepsDataAndPort(t *testing.T) {
	c := Start(t)
	url, pid := c.URL(), c.PID(apiServer)
	before := createConfigMap(t, c)

	if err := c.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.URL() != url {
		t.Errorf("the API server is at %s after a restart, was at %s", c.URL(), url)
	}
	if c.PID(apiServer) == pid {
		t.Error("the API server is the same process after a restart")
	}
	if after := getConfigMap(t, c, before.Name); after.UID != before.UID {
		t.Errorf("after a restart the object has uid %s, had %s", after.UID, before.UID)
	}
}

func TestStopAndKillRefuseConnections(t *testing.T) {
	c := Start(t)
	for name, end := range map[string]func() error{
		"stop": func() error { return c.StopAPIServer(t.Context()) },
		"kill": func() error { return c.KillAPIServer(t.Context()) },
	} {
		for range 2 { // the second time there is nothing to do
			if err := end(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := c.ready(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after %s, a request: %v, want its connection refused", name, err)
		}
		for range 2 {
			if err := c.StartAPIServer(t.Context()); err != nil {
				t.Fatalf("start after %s: %v", name, err)
			}
		}
		if err := c.ready(t.Context()); err != nil {
			t.Errorf("after %s and start: %v", name, err)
		}
	}
}

// The API server can be started again after a crash.
func TestStartAfterCrash(t *testing.T) {
	c := Start(t)
	if err := syscall.Kill(c.PID(apiServer), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.apiServer.done
	if pid := c.PID(apiServer); pid != 0 {
		t.Errorf("process id %d of an API server that has crashed", pid)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestForgetHistory(t *testing.T) {
	c := Start(t)
	// Its resourceVersion is the newest there is: the call has to make even
	// that one too old.
	configMap := createConfigMap(t, c)
	old := configMap.ResourceVersion
	if err := c.ForgetHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := func() *rest.Request {
		return coreClient(t, c.AdminConfig()).Get().Namespace("default").Resource("configmaps").Param("resourceVersion", old)
	}
	list := request().Param("resourceVersionMatch", "Exact").Do(t.Context()).Error()
	if !apierrors.IsResourceExpired(list) {
		t.Errorf("a list exactly at resourceVersion %s: %v, want 410", old, list)
	}
	// A watch is told in its first event.
	events, err := request().Param("watch", "true").Param("timeoutSeconds", "10").Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	event := <-events.ResultChan()
	if status, ok := event.Object.(*metav1.Status); !ok || status.Code != http.StatusGone {
		t.Errorf("a watch from resourceVersion %s: %s %v, want 410", old, event.Type, event.Object)
	}
	getConfigMap(t, c, configMap.Name) // the object itself is not forgotten
}

func TestCompactEtcd(t *testing.T) {
	c := Shared(t)
	old := createConfigMap(t, c)
	readAt := func(revision string) error {
		return c.callEtcd(t.Context(), "/v3/kv/range", map[string]string{"key": "Lw==", "revision": revision}, nil)
	}
	if err := readAt(old.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	if err := c.CompactEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := readAt(old.ResourceVersion); err == nil || !strings.Contains(err.Error(), "required revision has been compacted") {
		t.Errorf("etcd read at revision %s after a compaction: %v, want it gone", old.ResourceVersion, err)
	}
	if got := getConfigMap(t, c, old.Name); got.ResourceVersion != old.ResourceVersion {
		t.Errorf("after a compaction the object is at %s, want it unchanged at %s", got.ResourceVersion, old.ResourceVersion)
	}
}

func TestAPIServerFlags(t *testing.T) {
	c := Start(t, WithAPIServerFlags("--anonymous-auth=false"))
	config := c.AdminConfig()
	config.BearerToken = ""
	err := coreClient(t, config).Get().Resource("namespaces").Do(t.Context()).Error()
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a request without a token: %v, want it unauthorized as the flag says", err)
	}
}

func TestErrorHasTheLog(t *testing.T) {
	_, err := Launch(t.Context(), WithAPIServerFlags("--no-such-flag"))
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("Launch: %v, want what kube-apiserver says about its flags", err)
	}
}
