package metrics_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/informer/metrics"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCollector(t *testing.T) {
	server := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(server)
	defer stop()
	conn, err := cluster.New("test", config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informer.NewFactory(conn)
	inf, err := informer.For[*corev1.ConfigMap](factory, informer.InNamespace("default"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	panicked := inf.AddHandler(informer.HandlerFunc[*corev1.ConfigMap](func(e informer.Event[*corev1.ConfigMap]) {
		if e.Type == informer.Added {
			panic("no")
		}
	}), informer.Named("auditor"))
	inf.AddHandler(informer.Handlers[*corev1.ConfigMap]{}) // nameless
	if _, err := server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if err := factory.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer factory.Stop(ctx)
	if err := panicked.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	for changed := inf.StatusChanged(); inf.Status().Phase != informer.Watching; changed = inf.StatusChanged() {
		<-changed
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(metrics.NewCollector(metrics.OfFactory(factory))); err != nil {
		t.Fatal(err)
	}
	const of = `{cluster="test",group="",resource="configmaps",resource_namespace="default",version="v1"`
	want := strings.NewReplacer("{}", of+"}", "{h}", `{cluster="test",group="",handler="auditor",resource="configmaps",resource_namespace="default",version="v1"}`,
		"{p}", `{cluster="test",group="",phase="watching",resource="configmaps",resource_namespace="default",version="v1"}`).Replace(`
# HELP tidings_informer_objects Objects in the store.
# TYPE tidings_informer_objects gauge
tidings_informer_objects{} 1
# HELP tidings_informer_synced 1 once the first list is complete.
# TYPE tidings_informer_synced gauge
tidings_informer_synced{} 1
# HELP tidings_informer_phase Informers in the phase: one, unless several have the same labels.
# TYPE tidings_informer_phase gauge
tidings_informer_phase{p} 1
# HELP tidings_informer_handler_panics_total Events at which the handler panicked.
# TYPE tidings_informer_handler_panics_total counter
tidings_informer_handler_panics_total{h} 1
# HELP tidings_informer_handler_events_total Events delivered to the handler.
# TYPE tidings_informer_handler_events_total counter
tidings_informer_handler_events_total{h} 2
`)
	err = testutil.GatherAndCompare(registry, strings.NewReader(want), "tidings_informer_objects", "tidings_informer_synced", "tidings_informer_phase", "tidings_informer_handler_panics_total", "tidings_informer_handler_events_total")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestTheSameLabelsAreShownOnce(t *testing.T) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	now := time.Now()
	all := func() []informer.Status {
		return []informer.Status{
			{Resource: pods, Phase: informer.Watching, Objects: 3, Synced: true, Lists: 2, Lag: 1, LastErrorTime: now.Add(-time.Hour), LastContact: now, Handlers: []informer.HandlerStatus{
				{Name: "twice", Delivered: 2}, {Name: "twice", Delivered: 5}, {Name: "bad \xff"},
			}},
			{Resource: pods, Phase: informer.Waiting, Objects: 4, Lists: 3, Lag: 7, LastErrorTime: now, LastContact: now.Add(-time.Minute)},
		}
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(metrics.NewCollector(all)); err != nil {
		t.Fatal(err)
	}
	got := gather(t, registry)
	for name, want := range map[string]float64{
		"tidings_informer_objects": 7, "tidings_informer_synced": 0, "tidings_informer_relists_total": 3, "tidings_informer_lag_events": 7,
		"tidings_informer_phase watching": 1, "tidings_informer_phase waiting": 1,
		"tidings_informer_handler_events_total twice": 7, "tidings_informer_handler_events_total bad \uFFFD": 0,
		"tidings_informer_last_error_timestamp_seconds":   float64(now.UnixNano()) / 1e9,
		"tidings_informer_last_contact_timestamp_seconds": float64(now.Add(-time.Minute).UnixNano()) / 1e9,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// gather collects everything, by name and the handler's or the phase's label.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() == "handler" || l.GetName() == "phase" {
					name += " " + l.GetValue()
				}
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

func TestInformersOfTheDropIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := fcache.NewFakeControllerSource()
		defer source.Shutdown()
		source.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
		var informers clientgo.Registry
		inf := informers.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.RunWithContext(ctx)
		}()
		synctest.Wait()
		registry := prometheus.NewPedanticRegistry()
		if err := registry.Register(metrics.NewCollector(informers.Statuses)); err != nil {
			t.Fatal(err)
		}
		got := gather(t, registry)
		for name, want := range map[string]float64{
			"tidings_informer_objects": 1, "tidings_informer_synced": 1, "tidings_informer_phase watching": 1, "tidings_informer_watches_total": 1, "tidings_informer_relists_total": 0,
			"tidings_informer_handler_events_total github.com/tidings-io/tidings/informer/metrics_test.TestInformersOfTheDropIn.func1": 1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, want %v; there is %v", name, v, want, got)
			}
		}
		cancel()
		<-done
	})
}
