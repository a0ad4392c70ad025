package mutation_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/mutation"
)

// detector returns a detector that appends its reports to found.
func detector() (d *mutation.Detector[*corev1.Pod], found *[]*mutation.Error) {
	found = &[]*mutation.Error{}
	return mutation.New[*corev1.Pod](func() string { return "pods" }, func(err error) { *found = append(*found, err.(*mutation.Error)) }), found
}

func pod(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestObjectsAreNotHeld(t *testing.T) {
	d, found := detector()
	p := pod("a")
	gone := weak.Make(p)
	d.Lend(p)
	p = nil
	runtime.GC()
	if gone.Value() != nil {
		t.Error("an object without readers is held")
	}
	for i := range 1000 { // at addresses that were used before
		d.Lend(pod(fmt.Sprint(i)))
		if i%100 == 0 {
			runtime.GC()
			d.Check()
		}
	}
	if len(*found) > 0 {
		t.Errorf("a report without a modification: %v", (*found)[0])
	}
}

// TestReadingIsAllowed checks that the caches that reading fills do not count as
// modifications.
func TestReadingIsAllowed(t *testing.T) {
	d, found := detector()
	p := pod("a")
	size := resource.MustParse("1Gi")
	size.Add(resource.MustParse("1Mi")) // drops the cached text
	p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}
	d.Lend(p)
	limit := p.Spec.Volumes[0].EmptyDir.SizeLimit
	_ = limit.String()
	if _, err := json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	if _, err := limit.Marshal(); err != nil {
		t.Fatal(err)
	}
	d.Check()
	d.Returned("a reader", p, nil)
	if len(*found) > 0 {
		t.Errorf("a report after reading: %v", (*found)[0])
	}
	limit.Add(resource.MustParse("1Mi"))
	d.Returned("a writer", pod("never lent"), p)
	if len(*found) != 1 || (*found)[0].Suspect != "a writer" {
		t.Errorf("the reports are %v", *found)
	}
}

// TestManyAreReportedTogether checks that modifying a part that many objects share
// makes one short report.
func TestManyAreReportedTogether(t *testing.T) {
	d, found := detector()
	labels := map[string]string{"app": "web"}
	var pods []*corev1.Pod
	for i := range 10 {
		p := pod(fmt.Sprint("p", i))
		p.Labels = labels
		pods = append(pods, d.Lend(p))
	}
	pods[4].Labels["app"] = "mine"
	d.Check()
	d.Check()
	if len(*found) != 1 || len((*found)[0].Objects) != 10 || len((*found)[0].Diffs) != 10 {
		t.Fatalf("the reports are %v", *found)
	}
	if text := (*found)[0].Error(); strings.Count(text, `"app": "mine"`) != 3 || !strings.Contains(text, "And 7 more") {
		t.Errorf("the report is\n%s", text)
	}
	runtime.KeepAlive(pods)
}
