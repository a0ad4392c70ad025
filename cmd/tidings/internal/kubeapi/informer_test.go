package kubeapi_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

// witness records the events of an informer and their errors.
type witness struct {
	mu     sync.Mutex
	there  map[string]string // resourceVersion by name
	events int
	wrong  []string
}

func (w *witness) note(kind string, o *corev1.ConfigMap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	have, known := w.there[o.Name]
	switch {
	case kind == "add" && known:
		w.wrong = append(w.wrong, fmt.Sprintf("%s was added twice", o.Name))
	case kind == "update" && !known:
		w.wrong = append(w.wrong, fmt.Sprintf("%s was changed without having been added", o.Name))
	case kind == "update" && !newer(o.ResourceVersion, have):
		w.wrong = append(w.wrong, fmt.Sprintf("%s at %s was delivered after %s", o.Name, o.ResourceVersion, have))
	case kind == "delete" && !known:
		w.wrong = append(w.wrong, fmt.Sprintf("%s was deleted without having been there", o.Name))
	}
	if kind == "delete" {
		delete(w.there, o.Name)
	} else {
		w.there[o.Name] = o.ResourceVersion
	}
}

func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

func (w *witness) is(want map[string]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.there, want)
}

// watchConfigMaps runs an unmodified informer of client-go.
func watchConfigMaps(t *testing.T, config *rest.Config, namespace string) *witness {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	w := &witness{there: map[string]string{}}
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { w.note("add", o.(*corev1.ConfigMap)) },
		UpdateFunc: func(old, o any) {
			// A relist also delivers objects that have not changed.
			if old.(*corev1.ConfigMap).ResourceVersion != o.(*corev1.ConfigMap).ResourceVersion {
				w.note("update", o.(*corev1.ConfigMap))
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			w.note("delete", o.(*corev1.ConfigMap))
		},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	return w
}

// TestInformerThroughEverything checks an unmodified informer against the cluster while
// that is written to, its API server restarts and its history is compacted, in JSON and in
// protobuf.
func TestInformerThroughEverything(t *testing.T) {
	cp := controlplane.Start(t)
	r := start(t, cp.AdminConfig(), mirror.Options{}, server.Options{})
	const namespace = "default"
	configs := map[string]*rest.Config{"json": rest.CopyConfig(r.ours.config), "protobuf": rest.CopyConfig(r.ours.config)}
	configs["protobuf"].ContentType = "application/vnd.kubernetes.protobuf"
	witnesses := map[string]*witness{}
	for name, config := range configs {
		witnesses[name] = watchConfigMaps(t, config, namespace)
	}
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	truth := func() map[string]string {
		list, err := admin.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, o := range list.Items {
			out[o.Name] = o.ResourceVersion
		}
		return out
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	write := func(n int) {
		path := "/api/v1/namespaces/" + namespace + "/configmaps"
		for i := range n {
			name := fmt.Sprint("c", rnd.IntN(12))
			var err error
			switch rnd.IntN(3) {
			case 0:
				_, err = r.theirs.write("POST", path, fmt.Sprintf(`{"metadata":{"name":%q},"data":{"i":"%d"}}`, name, i))
			case 1:
				_, err = r.theirs.write("PATCH", path+"/"+name, fmt.Sprintf(`{"data":{"i":"%d-%d"}}`, i, rnd.Int()))
			default:
				_, err = r.theirs.write("DELETE", path+"/"+name, "")
			}
			_ = err // what is there already, or not, does not matter
		}
	}
	settled := func(when string) {
		t.Helper()
		want := truth()
		for name, w := range witnesses {
			eventually(t, "the "+name+" informer knows everything "+when, func() bool { return w.is(want) })
		}
	}
	write(150)
	settled("after many writes")
	for round := range 3 {
		if err := cp.KillAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cp.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		write(40) // before the mirror is back
		if round > 0 {
			if err := cp.CompactEtcd(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		write(40)
		settled(fmt.Sprint("after restart ", round))
	}
	for name, w := range witnesses {
		w.mu.Lock()
		t.Logf("%s: %d events", name, w.events)
		for _, wrong := range w.wrong {
			t.Errorf("%s: %s", name, wrong)
		}
		w.mu.Unlock()
	}
}
