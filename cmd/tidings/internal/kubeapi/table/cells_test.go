package table_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
)

func gvk(apiVersion, kind string) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

func TestCells(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	const born = `"creationTimestamp": "2026-01-01T00:00:00Z"`
	for name, test := range map[string]struct {
		apiVersion, kind, object string
		want                     []any
	}{
		"a pod that restarted": {"v1", "Pod", `{"metadata": {"name": "p", ` + born + `}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [
			{"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T23:00:00Z"}}},
			{"name": "b", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}`,
			[]any{"p", "1/2", "CrashLoopBackOff", "3 (60m ago)", "24h", "10.0.0.1", "<none>", "<none>", "<none>"}},
		"a pod being initialised": {"v1", "Pod", `{"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]}, "status": {"phase": "Pending",
			"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "state": {"running": {}}}]}}`,
			[]any{"p", "0/1", "Init:1/2", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"}},
		"an autoscaler": {"autoscaling/v2", "HorizontalPodAutoscaler", `{"apiVersion": "autoscaling/v2", "metadata": {"name": "h", ` + born + `}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 9, "metrics": [
			{"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Gi"}}}, {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}, {"type": "Pods"}]},
			"status": {"currentReplicas": 3, "currentMetrics": [{"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "500Mi"}}}, {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 75}}}]}}`,
			[]any{"h", "Deployment/web", "memory: 500Mi/1Gi, cpu: 75%/80% + 1 more...", "1", int64(9), int64(3), "24h"}},
		"an autoscaler of version 1": {"autoscaling/v1", "HorizontalPodAutoscaler", `{"apiVersion": "autoscaling/v1", "metadata": {"name": "h", ` + born + `, "annotations": {
			"autoscaling.alpha.kubernetes.io/metrics": "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"1Gi\"}}]",
			"autoscaling.alpha.kubernetes.io/current-metrics": "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"currentAverageValue\":\"500Mi\"}},{\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"currentAverageUtilization\":75,\"currentAverageValue\":\"7m\"}}]"}},
			"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9, "targetCPUUtilizationPercentage": 80}, "status": {"currentReplicas": 3}}`,
			[]any{"h", "Deployment/web", "memory: 500Mi/1Gi, cpu: 75%/80%", "<unset>", int64(9), int64(3), "24h"}},
		"a job that runs": {"batch/v1", "Job", `{"metadata": {"name": "j", ` + born + `}, "spec": {"completions": 3}, "status": {"startTime": "2026-01-01T23:59:00Z", "succeeded": 1}}`,
			[]any{"j", "Running", "1/3", "60s", "24h", "", "", "<none>"}},
		"what nobody knows": {"example.com/v1", "Thing", `{"metadata": {"name": "t", ` + born + `}}`, []any{"t", "2026-01-01T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := table.For(gvk(test.apiVersion, test.kind), nil)
			got, err := p.Cells([]byte(test.object), now)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("want -, have +\n%s", d)
			}
		})
	}
}

// A row is made once, and its ages increase.
func TestRowGrowsOld(t *testing.T) {
	object := []byte(`{"metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}}`)
	row, err := table.For(gvk("v1", "Namespace"), nil).Row(object)
	if err != nil {
		t.Fatal(err)
	}
	for i := range object {
		object[i] = 'x' // the row has kept nothing of it
	}
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := row.Cells(born.Add(time.Second))
	if second := row.Cells(born.Add(time.Hour)); first[2] != "1s" || second[2] != "60m" || second[0] != "web" || second[1] != "Active" {
		t.Errorf("%v, %v", first, second)
	}
}

func TestCompletedPods(t *testing.T) {
	for phase, want := range map[string]int{"Succeeded": 1, "Failed": 1, "Running": 0} {
		row, err := table.For(gvk("v1", "Pod"), nil).Row([]byte(`{"status": {"phase": "` + phase + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if c := row.Conditions(); len(c) != want || want == 1 && c[0].Reason != phase {
			t.Errorf("%s: %v", phase, c)
		}
	}
}

func TestNoObject(t *testing.T) {
	for _, text := range []string{``, `[]`, `"text"`, `null`} {
		if _, err := table.For(gvk("v1", "Pod"), nil).Row([]byte(text)); err == nil || !strings.Contains(err.Error(), "not a JSON object") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Every object has cells, of the types that a table may have.
func FuzzCells(f *testing.F) {
	kinds := []schema.GroupVersionKind{
		gvk("v1", "Pod"), gvk("v1", "Node"), gvk("v1", "Service"), gvk("v1", "Event"), gvk("v1", "ResourceQuota"), gvk("batch/v1", "Job"),
		gvk("autoscaling/v1", "HorizontalPodAutoscaler"), gvk("autoscaling/v2", "HorizontalPodAutoscaler"), gvk("discovery.k8s.io/v1", "EndpointSlice"),
		gvk("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"), gvk("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest"), gvk("example.com/v1", "Custom"),
	}
	crd := &table.CRDColumns{Columns: []table.CRDColumn{{Name: "A", Type: "string", JSONPath: ".spec.a[*]"}, {Name: "B", Type: "date", JSONPath: ".spec.b"}}}
	for _, seed := range []string{`{}`, `{"metadata":null,"spec":{"a":[1],"b":"x"},"status":[]}`, `{"status":{"conditions":{"type":5},"containerStatuses":[null,5,{}]}}`, `{"spec":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		for _, kind := range kinds {
			p := table.For(kind, crd)
			cells, err := p.Cells(object, time.Unix(0, 0))
			if err != nil {
				continue
			}
			if len(cells) != len(p.Columns()) {
				t.Fatalf("%s: %d cells in %d columns", kind, len(cells), len(p.Columns()))
			}
			for _, c := range cells {
				switch n := c.(type) {
				case nil, string, bool, int64:
				case float64:
					if math.IsNaN(n) || math.IsInf(n, 0) {
						t.Fatalf("%s: %v is nothing that JSON can say", kind, n)
					}
				default:
					t.Fatalf("%s: a cell is a %s", kind, reflect.TypeOf(c))
				}
			}
		}
	})
}

func BenchmarkPod(b *testing.B) {
	p, pod := table.For(gvk("v1", "Pod"), nil), samplePod(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Row(pod); err != nil {
			b.Fatal(err)
		}
	}
}
