package informertest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/informertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// follow starts an informer in a bubble and returns a function that reads what its
// handler got since the last call.
func follow(t *testing.T, inf *informer.Informer[*corev1.Pod]) (read func() []string) {
	t.Helper()
	var got []string
	inf.AddHandler(informer.HandlerFunc[*corev1.Pod](func(e informer.Event[*corev1.Pod]) {
		line := e.Type.String()
		if e.Object != nil {
			line += " " + e.Object.Name
		}
		if e.Tombstone {
			line += " tombstone"
		}
		got = append(got, line)
	}))
	if err := inf.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		time.Sleep(2 * time.Minute) // of the bubble: until retries are over
		synctest.Wait()
		lines := got
		got = nil
		return lines
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("delivered %q, not %q", got, want)
	}
}

func TestSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a", corev1.PodRunning), pod("b", corev1.PodRunning))
		inf, err := informer.NewFromSource("test", source)
		if err != nil {
			t.Fatal(err)
		}
		read := follow(t, inf)
		expect(t, read(), "ADDED a", "ADDED b", "SYNCED")
		given := pod("a", corev1.PodFailed)
		stored := source.Set(given)
		if stored == given || stored.ResourceVersion == "" || stored.UID == "" || given.ResourceVersion != "" {
			t.Errorf("%v was stored as %v", given, stored)
		}
		if !source.Delete("default", "b") || source.Delete("default", "b") {
			t.Error("b was not deleted once")
		}
		expect(t, read(), "MODIFIED a", "DELETED b")
		source.Fail(errors.New("out of order"))
		synctest.Wait()
		if s := inf.Status(); s.Phase != informer.Waiting || !strings.Contains(s.LastError.Error(), "watch pods of cluster test: out of order") {
			t.Errorf("after a failure the status is %+v", s)
		}
		source.Set(pod("c", corev1.PodRunning))
		expect(t, read(), "ADDED c")
		source.Delete("default", "a")
		source.Expire()
		expect(t, read(), "DELETED a tombstone")
		if s := inf.Status(); s.Lists != 2 {
			t.Errorf("%d lists", s.Lists)
		}
		if err := inf.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, err := informertest.NewServer(pod("a", corev1.PodRunning), pod("b", corev1.PodRunning))
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		conn, err := cluster.New("test", server.Config())
		if err != nil {
			t.Fatal(err)
		}
		inf, err := informer.New[*corev1.Pod](conn)
		if err != nil {
			t.Fatal(err)
		}
		server.Fail(1, "watch", pods, apierrors.NewTooManyRequests("later", 1))
		read := follow(t, inf)
		expect(t, read(), "ADDED a", "ADDED b", "SYNCED")
		if _, err := server.Create(pod("a", corev1.PodRunning)); !apierrors.IsAlreadyExists(err) {
			t.Errorf("created again: %v", err)
		}
		server.BreakWatches(pods)
		if err := server.Delete(pods, "default", "b"); err != nil {
			t.Fatal(err)
		}
		expect(t, read(), "DELETED b")
		lists := inf.Status().Lists
		server.Expire(pods)
		if _, err := server.Update(pod("a", corev1.PodFailed)); err != nil {
			t.Fatal(err)
		}
		expect(t, read(), "MODIFIED a")
		if s := inf.Status(); s.Lists != lists+1 {
			t.Errorf("%d lists after %d", s.Lists, lists)
		}
		server.SetDown(true)
		time.Sleep(time.Minute)
		if s := inf.Status(); s.Phase != informer.Waiting {
			t.Errorf("with the server down the status is %+v", s)
		}
		server.SetDown(false)
		requests := server.Requests("watch", pods)
		read()
		if server.Requests("watch", pods) <= requests {
			t.Error("no watch was counted")
		}
		if err := inf.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := informertest.NewServer(pod("", corev1.PodRunning)); err == nil || !strings.Contains(err.Error(), "create *v1.Pod") {
			t.Errorf("a server with a pod without a name: %v", err)
		}
	})
}

// Server-side apply is refused by words that say what to do instead.
func TestApplyIsRefused(t *testing.T) {
	server, err := informertest.NewServer(pod("a", corev1.PodRunning))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Pods("default").Patch(t.Context(), "a", types.ApplyPatchType, []byte("{}"), metav1.PatchOptions{FieldManager: "test"})
	if !apierrors.IsUnsupportedMediaType(err) || !strings.Contains(err.Error(), "has no server-side apply: create, update or patch") {
		t.Errorf("apply: %v", err)
	}
}
