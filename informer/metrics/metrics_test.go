package metrics_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/demo"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCollector(t *testing.T) {
	server := demo.New(demo.Options{})
	config, stop := demo.InProcess(server)
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
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(metrics.NewCollector(metrics.OfFactory(factory))); err != nil {
		t.Fatal(err)
	}
	const of = `{cluster="test",group="",namespace="default",resource="configmaps",version="v1"`
	want := strings.NewReplacer("{}", of+"}", "{h}", `{cluster="test",group="",handler="auditor",namespace="default",resource="configmaps",version="v1"}`,
		"{p}", `{cluster="test",group="",namespace="default",phase="watching",resource="configmaps",version="v1"}`).Replace(`
# HELP tidings_objects Objects in the store.
# TYPE tidings_objects gauge
tidings_objects{} 1
# HELP tidings_synced 1 once the first list is complete.
# TYPE tidings_synced gauge
tidings_synced{} 1
# HELP tidings_phase 1 for the phase the informer is in.
# TYPE tidings_phase gauge
tidings_phase{p} 1
# HELP tidings_handler_panics_total Events at which the handler panicked.
# TYPE tidings_handler_panics_total counter
tidings_handler_panics_total{h} 1
# HELP tidings_handler_events_total Events the handler has been told.
# TYPE tidings_handler_events_total counter
tidings_handler_events_total{h} 2
`)
	err = testutil.GatherAndCompare(registry, strings.NewReader(want), "tidings_objects", "tidings_synced", "tidings_phase", "tidings_handler_panics_total", "tidings_handler_events_total")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
