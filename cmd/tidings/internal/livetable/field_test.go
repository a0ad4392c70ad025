package livetable_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

func TestFieldsAsColumns(t *testing.T) {
	inBubble(t, livetable.Options{}, func(r *rig) {
		r.put("default", "x", corev1.PodRunning, func(p *corev1.Pod) {
			p.Spec.NodeName = "n1"
			p.Labels = map[string]string{"app.kubernetes.io/name": "web", "a#b": "no", "count": "3"}
			p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 443}}}, {Name: "log", Image: "log:2"}}
			p.Spec.HostNetwork = true
			p.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: "True"}, {Type: "Other", Status: "False"}}
			p.Status.StartTime = &metav1.Time{}
		})
		for path, want := range map[string]any{
			".spec.nodeName": "n1", ".metadata.labels['app.kubernetes.io/name']": "web", `.metadata.labels.app\.kubernetes\.io/name`: "web",
			".metadata.labels['a#b']": "no", ".metadata.labels.count": "3", ".spec.containers[*].image": "app:1,log:2", ".spec.containers[1].name": "log",
			".spec.containers[*].ports[*].containerPort": "80,443", ".spec.containers[0].ports[1].containerPort": 443.0, ".spec.hostNetwork": true,
			`.status.conditions[?(@.type=="Ready")].status`: "True", ".status.nothing": nil, ".spec.containers[9].name": nil, "['spec']['nodeName']": "n1",
			".metadata.labels": nil, ".spec.containers[*].none": nil,
		} {
			c := r.open(r.query(nil), livetable.Params{Count: 1, Columns: []string{"Name", path}})
			c.next()
			row := c.rows["default/x"]
			if len(row) != 2 || path == ".metadata.labels" && !strings.HasPrefix(fmt.Sprint(row[1]), "{") || path != ".metadata.labels" && row[1] != want {
				t.Errorf("%s: %v, want %v", path, row, want)
			}
			c.window.Close()
		}
		both := r.open(r.query(nil), livetable.Params{Count: 1, Columns: []string{".spec.nodeName", ".metadata.uid"}, Sort: ".spec.nodeName", Filter: "n1"})
		defer both.window.Close()
		both.next()
		var names []string
		for _, c := range both.Columns {
			names = append(names, c.Name)
		}
		if len(both.Keys) != 1 || !slices.Equal(names[len(names)-3:], []string{"Age", ".spec.nodeName", ".metadata.uid"}) {
			t.Errorf("%q: %q", both.Keys, names)
		}
		r.put("default", "x", corev1.PodRunning, func(p *corev1.Pod) { p.Spec.NodeName = "n2" })
		both.settled()
		if both.Total != 0 {
			t.Errorf("it passes the filter by the field that it had: %+v", both)
		}
	})
}

func TestInvalidFields(t *testing.T) {
	inBubble(t, livetable.Options{}, func(r *rig) {
		for _, path := range []string{".", "..spec", ".spec.", ".spec[", ".spec[x]", ".spec[?(@.a)]", ".a|b", ".@this", ".#", ".a*", "{.spec}", ".spec[-1]", `.a[?(@.b=="\"")]`, "." + strings.Repeat("x", livetable.MaxPath)} {
			if _, err := r.tables.Hold(r.ctx, r.query(nil), livetable.Params{Count: 1, Columns: []string{"Name", path}}); mirror.ReasonOf(err) != mirror.Invalid && path[0] != '{' {
				t.Errorf("%s: %v", path, err)
			}
		}
		var many []string
		for i := range livetable.MaxFields + 1 {
			many = append(many, fmt.Sprint(".f", i))
		}
		if _, err := r.tables.Hold(r.ctx, r.query(nil), livetable.Params{Count: 1, Columns: many}); mirror.ReasonOf(err) != mirror.Invalid {
			t.Errorf("too many: %v", err)
		}
		c, err := r.mirror.Cluster("")
		r.must(err)
		of, err := c.Resolve(r.ctx, "secrets")
		r.must(err)
		q, err := read.NewQuery(read.Params{Cluster: c, Resource: of.GVR(), Verb: read.Watch})
		r.must(err)
		r.must(q.Bind(of))
		for path, allowed := range map[string]bool{
			".type": true, ".metadata.labels": true, ".metadata['uid']": true, ".data": false, ".data.password": false, "['data'].x": false, ".stringData": false,
			".metadata": false, ".metadata.annotations": false, ".metadata['annotations'].x": false, "[*]": false, ".metadata[0]": false, ".metadata.managedFields": false,
		} {
			held, err := r.tables.Hold(r.ctx, q, livetable.Params{Count: 1, Columns: []string{path}})
			if err == nil {
				held.Release()
			}
			if (err == nil) != allowed {
				t.Errorf("%s of Secrets: %v", path, err)
			}
		}
	})
}
