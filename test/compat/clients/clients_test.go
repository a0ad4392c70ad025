// Package clients runs unmodified clients of Kubernetes against a mirror.
package clients

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidings-io/tidings/internal/controlplane"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	log.SetLogger(klog.Background())
	// controller-runtime's caches leave this goroutine behind if they stop
	// while an event arrives.
	left := goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")
	goleak.VerifyTestMain(controlplane.Tests(m), left)
}

// observers are the observers of all kinds of clients, by the kind.
type observers map[string]*observer

// everyClient runs clients of every kind, each with a watch of its own.
func everyClient(r *rig) observers {
	obs := observers{}
	for _, streaming := range []bool{false, true} {
		clientfeaturestesting.SetFeatureDuringTest(r.T, clientfeatures.WatchListClient, streaming)
		for at, where := range map[string]string{"": "", "/clusters/real": " of one of several clusters"} {
			if streaming {
				where += ", streaming lists"
			}
			obs["a typed informer, JSON"+where] = r.typed(at, "application/json")
			obs["a typed informer, protobuf"+where] = r.typed(at, "application/vnd.kubernetes.protobuf")
			obs["a metadata informer"+where] = r.metadata(at)
			obs["a dynamic informer"+where] = r.dynamic(at)
			obs["a controller-runtime cache"+where] = r.controllerRuntime(at, &corev1.ConfigMap{})
		}
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	generic, partial := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	generic.SetGroupVersionKind(kind)
	partial.SetGroupVersionKind(kind)
	obs["a controller-runtime cache of unstructured"] = r.controllerRuntime("", generic)
	obs["a controller-runtime cache of metadata"] = r.controllerRuntime("", partial)
	return obs
}

// waitSynced waits until all observers know the current objects.
func (obs observers) waitSynced(r *rig, when string) {
	r.Helper()
	want, began := r.truth(), time.Now()
	for name, o := range obs {
		eventually(r, name+" is up to date "+when, func() bool { return o.knows(want) })
	}
	r.Logf("%s: all clients are up to date after %v; the mirror has listed again %d times", when, time.Since(began).Round(time.Millisecond), r.relists())
}

// checkEvents checks that every observer gets exactly the events of write.
func (obs observers) checkEvents(r *rig, when string, write func() []string) {
	r.Helper()
	before := map[string]int{}
	for name, o := range obs {
		before[name] = len(o.since(0))
	}
	want := write()
	obs.waitSynced(r, when)
	for name, o := range obs {
		if got := o.since(before[name]); !slices.Equal(got, want) {
			r.Errorf("%s got, %s,\n%s\nand not\n%s", name, when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestClientsMissNothing compares the events of unmodified clients, each with
// its own rights and its own watch, with the writes to the cluster: while the
// mirror lags, when connections break, and when the API server restarts and
// loses its history. Clients must get every event that the mirror can know of
// once and in order, and no event twice. In the end they must know all objects,
// and none may have listed again.
func TestClientsMissNothing(t *testing.T) {
	r := newRig(t)
	r.write(40)
	informers := everyClient(r)
	all := maps.Clone(informers)
	all["kubectl"] = r.kubectl("/clusters/real")
	all.waitSynced(r, "to begin with")
	lists := map[string]int64{}
	for name, o := range informers {
		if lists[name] = o.lists.Load(); lists[name] == 0 {
			t.Errorf("%s has not listed, so this test does not observe its lists", name)
		}
	}

	all.checkEvents(r, "of what happens", func() []string { return r.write(60) })
	all.checkEvents(r, "when the mirror has lagged", func() []string {
		r.cluster.pause()
		events := r.write(60)
		truth := r.truth()
		for name, o := range all {
			if o.knows(truth) {
				t.Errorf("the proxy is paused, but %s is up to date", name)
			}
		}
		r.cluster.unpause()
		return events
	})
	all.checkEvents(r, "when the mirror has lagged and its watch broke", func() []string {
		r.cluster.pause()
		events := r.write(60)
		r.cluster.cut()
		r.cluster.unpause()
		return events
	})

	all.checkEvents(r, "when the clients have lagged behind the mirror", func() []string {
		r.clients.pause()
		events := r.write(60)
		r.clients.unpause()
		return events
	})

	// kubectl ends with its connection. The others resume.
	all["kubectl"].over()
	informers.checkEvents(r, "when the clients' connections broke while the mirror lagged", func() []string {
		r.cluster.pause()
		events := r.write(30)
		r.clients.cut()
		events = append(events, r.write(30)...)
		r.cluster.unpause()
		return events
	})
	informers.checkEvents(r, "when the clients' connections broke and the mirror went on", func() []string {
		r.clients.pause()
		events := r.write(30) // lost on the way
		r.clients.cut()
		events = append(events, r.write(30)...)
		r.clients.unpause()
		return events
	})
	all["kubectl, once more"] = r.kubectl("")
	delete(all, "kubectl")

	// A restarted API server may have no history, and has none if etcd was
	// compacted. The mirror then lists, and gets no events for objects that
	// were created and deleted meanwhile.
	for _, compact := range []bool{false, true} {
		when := "after the API server was killed"
		r.must(r.cp.KillAPIServer(t.Context()))
		r.must(r.cp.StartAPIServer(t.Context()))
		r.write(40) // most of it before the mirror is back
		if compact {
			when += " and etcd compacted"
			r.must(r.cp.CompactEtcd(t.Context()))
		}
		r.write(40)
		all.waitSynced(r, when)
		all.checkEvents(r, "of what happens "+when, func() []string { return r.write(20) })
	}
	listed := r.relists()
	r.cluster.pause()
	r.write(60)
	r.must(r.cp.KillAPIServer(t.Context()))
	r.must(r.cp.CompactEtcd(t.Context()))
	r.must(r.cp.StartAPIServer(t.Context()))
	r.cluster.cut()
	r.cluster.unpause()
	r.write(20)
	all.waitSynced(r, "when the mirror has lagged and the cluster has lost its history")
	if r.relists() == listed {
		t.Error("the mirror has not listed again, so the cluster has not lost its history")
	}
	all.checkEvents(r, "of what happens in the end", func() []string { return r.write(20) })

	for name, o := range all {
		o.mu.Lock()
		t.Logf("%s: %d events", name, len(o.events))
		for _, wrong := range o.wrong {
			t.Errorf("%s: %s", name, wrong)
		}
		o.mu.Unlock()
		if n := o.lists.Load() - lists[name]; n > 0 {
			t.Errorf("%s had to list again, %d times", name, n)
		}
	}
}
