package history

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A resource that was defined again has several series, which are found together. Versions
// that are served at the same time have nothing to do with each other.
func TestSeriesOfAResourceThatWasDefinedAgain(t *testing.T) {
	s, err := Open("history", Options{Logger: discard, InMemory: true})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	hour := time.Now().Add(-10 * time.Hour)
	record := func(version string, namespaced bool, from, to int) Resource {
		t.Helper()
		of := testPods
		of.Version, of.Namespaced = version, namespaced
		w, err := s.Writer(of)
		must(t, err)
		must(t, w.Append(Batch{Time: hour.Add(time.Duration(from) * time.Hour), ResourceVersion: uint64(from), Changes: []Version{{Type: Added, Key: "a", ResourceVersion: uint64(from), Object: []byte(`{}`)}}}))
		must(t, w.Close(hour.Add(time.Duration(to)*time.Hour)))
		return of
	}
	first := record("v1", true, 1, 2)
	second := record("v1", false, 3, 9)
	beta := record("v2beta1", false, 4, 5)
	third := record("v2", false, 6, 9) // beside the second
	for _, want := range [][]Resource{{first}, {second, first}, {beta, first}, {third, beta, first}} {
		var got []Resource
		for _, series := range s.FindAll(want[0]) {
			got = append(got, series.Of)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %+v there are %+v", want[0], got)
		}
	}
	list := s.Discovery(testPods.Cluster)["/api/v1"].(*metav1.APIResourceList)
	if len(list.APIResources) != 1 || list.APIResources[0].Namespaced {
		t.Errorf("the folder has %+v, not the newest definition", list.APIResources)
	}
}
