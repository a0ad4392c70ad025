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
	// controller-runtime's caches leave this behind when they end while an event comes.
	left := goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")
	goleak.VerifyTestMain(controlplane.Tests(m), left)
}

// witnesses are what clients of every kind are told, by what they are.
type witnesses map[string]*witness

// everyClient runs clients of every kind, each with a watch of its own.
func everyClient(p *place) witnesses {
	ws := witnesses{}
	for _, streaming := range []bool{false, true} {
		clientfeaturestesting.SetFeatureDuringTest(p.T, clientfeatures.WatchListClient, streaming)
		for at, where := range map[string]string{"": "", "/clusters/real": " of one of several clusters"} {
			if streaming {
				where += ", streaming lists"
			}
			ws["a typed informer, JSON"+where] = p.typed(at, "application/json")
			ws["a typed informer, protobuf"+where] = p.typed(at, "application/vnd.kubernetes.protobuf")
			ws["a metadata informer"+where] = p.metadata(at)
			ws["a dynamic informer"+where] = p.dynamic(at)
			ws["a controller-runtime cache"+where] = p.controllerRuntime(at, &corev1.ConfigMap{})
		}
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	generic, partial := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	generic.SetGroupVersionKind(kind)
	partial.SetGroupVersionKind(kind)
	ws["a controller-runtime cache of unstructured"] = p.controllerRuntime("", generic)
	ws["a controller-runtime cache of metadata"] = p.controllerRuntime("", partial)
	return ws
}

// settled waits until all know what is there.
func (ws witnesses) settled(p *place, when string) {
	p.Helper()
	want, began := p.truth(), time.Now()
	for name, w := range ws {
		eventually(p, name+" knows everything "+when, func() bool { return w.is(want) })
	}
	p.Logf("%s: all know everything %v later; the mirror has listed anew %d times", when, time.Since(began).Round(time.Millisecond), p.relists())
}

// exactly holds what is told of some writes to the letter.
func (ws witnesses) exactly(p *place, when string, write func() []string) {
	p.Helper()
	before := map[string]int{}
	for name, w := range ws {
		before[name] = len(w.since(0))
	}
	want := write()
	ws.settled(p, when)
	for name, w := range ws {
		if got := w.since(before[name]); !slices.Equal(got, want) {
			p.Errorf("%s was told %s\n%s\nand not\n%s", name, when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestClientsMissNothing holds unmodified clients, each under its own rights and
// with a watch that it thinks is the cluster's, to the truth: while the cluster
// is written to, while the mirror lags behind it, when connections break, and when
// its API server dies and its history is forgotten. What the mirror can know to
// have happened is told once and in order; never is anything told twice; in the
// end nothing is missing; and nobody had to list anew.
func TestClientsMissNothing(t *testing.T) {
	p := newPlace(t)
	p.write(40)
	informers := everyClient(p)
	all := maps.Clone(informers)
	all["kubectl"] = p.kubectl("/clusters/real")
	all.settled(p, "to begin with")
	lists := map[string]int64{}
	for name, w := range informers {
		if lists[name] = w.lists.Load(); lists[name] == 0 {
			t.Errorf("%s has not listed, so this test does not see it", name)
		}
	}

	all.exactly(p, "of what happens", func() []string { return p.write(60) })
	all.exactly(p, "when the mirror has lagged", func() []string {
		p.cluster.hold()
		told := p.write(60)
		truth := p.truth()
		for name, w := range all {
			if w.is(truth) {
				t.Errorf("the line is held, and %s knows everything", name)
			}
		}
		p.cluster.release()
		return told
	})
	all.exactly(p, "when the mirror has lagged and its watch broke", func() []string {
		p.cluster.hold()
		told := p.write(60)
		p.cluster.cut()
		p.cluster.release()
		return told
	})

	all.exactly(p, "when the clients have lagged behind the mirror", func() []string {
		p.clients.hold()
		told := p.write(60)
		p.clients.release()
		return told
	})

	// kubectl ends with its connection. The others go on from where they were.
	all["kubectl"].over()
	informers.exactly(p, "when the clients' connections broke while the mirror lagged", func() []string {
		p.cluster.hold()
		told := p.write(30)
		p.clients.cut()
		told = append(told, p.write(30)...)
		p.cluster.release()
		return told
	})
	informers.exactly(p, "when the clients' connections broke and the mirror went on", func() []string {
		p.clients.hold()
		told := p.write(30) // which is lost on the way
		p.clients.cut()
		told = append(told, p.write(30)...)
		p.clients.release()
		return told
	})
	all["kubectl, once more"] = p.kubectl("")
	delete(all, "kubectl")

	// An API server that has been started anew may know no history, and does not
	// if etcd was compacted: the mirror has to list, and is not told of what came
	// and went meanwhile.
	for _, compact := range []bool{false, true} {
		when := "after the API server was killed"
		p.must(p.cp.KillAPIServer(t.Context()))
		p.must(p.cp.StartAPIServer(t.Context()))
		p.write(40) // most of it before the mirror is back
		if compact {
			when += " and etcd compacted"
			p.must(p.cp.CompactEtcd(t.Context()))
		}
		p.write(40)
		all.settled(p, when)
		all.exactly(p, "of what happens "+when, func() []string { return p.write(20) })
	}
	listed := p.relists()
	p.cluster.hold()
	p.write(60)
	p.must(p.cp.KillAPIServer(t.Context()))
	p.must(p.cp.CompactEtcd(t.Context()))
	p.must(p.cp.StartAPIServer(t.Context()))
	p.cluster.cut()
	p.cluster.release()
	p.write(20)
	all.settled(p, "when the mirror has lagged and the cluster has forgotten what happened")
	if p.relists() == listed {
		t.Error("the mirror has not listed anew, so the cluster has not forgotten what happened")
	}
	all.exactly(p, "of what happens in the end", func() []string { return p.write(20) })

	for name, w := range all {
		w.mu.Lock()
		t.Logf("%s: %d events", name, len(w.events))
		for _, wrong := range w.wrong {
			t.Errorf("%s: %s", name, wrong)
		}
		w.mu.Unlock()
		if n := w.lists.Load() - lists[name]; n > 0 {
			t.Errorf("%s had to list anew, %d times", name, n)
		}
	}
}
