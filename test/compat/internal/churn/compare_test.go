package churn

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const pods = "/api/v1/namespaces/NAMESPACE/pods"

// sampleRecord returns a record of a correct engine: a deterministic phase
// and a racy one.
func sampleRecord(engine string) *record {
	calls := func() []Call {
		return []Call{
			{Verb: http.MethodPost, Path: pods, Status: 201, Body: map[string]any{"metadata": map[string]any{"name": "p1-0"}, "value": 1.0}},
			{Verb: http.MethodDelete, Path: pods + "/p1-0", Status: 200},
			{Verb: http.MethodPost, Path: pods, Status: 201, Body: map[string]any{"metadata": map[string]any{"name": "p1-0"}, "value": 2.0}},
			{Verb: http.MethodPut, Path: pods + "/p1-0", Status: 409, Body: map[string]any{"value": 1.0}}, // came to nothing
		}
	}
	requests := func() map[string][]request {
		return map[string][]request{pods: {{shape: "list resourceVersion=0", status: 200}, {shape: "watch resourceVersion=LAST", status: 200}}}
	}
	steps := []step{{op: opApply, name: "p1"}, {op: opApply, name: "p1"}}
	return &record{
		engine: engine,
		value: func(body map[string]any) (int, bool) {
			n, ok := body["value"].(float64)
			return int(n), ok
		},
		phases: []phase{
			{name: "round", steps: steps, calls: calls(), requests: requests()},
			{name: "outage", requests: requests(), outage: true},
			{name: "burst", steps: steps, calls: calls(), requests: requests(), racy: true},
		},
		end: []string{`{"name":"p1-0"}`},
	}
}

func TestDifferencesAreReported(t *testing.T) {
	for what, test := range map[string]struct {
		change func(r *record)
		want   string // "": nothing
	}{
		"nothing":                {func(*record) {}, ""},
		"calls in another order": {func(r *record) { slices.Reverse(r.phases[0].calls) }, ""},
		"discovery": {func(r *record) {
			r.phases[0].calls = append(r.phases[0].calls, Call{Verb: "GET", Path: "/api/v1", Status: 200}, Call{Verb: "GET", Path: "/apis/apps/v1?timeout=32s", Status: 200})
		}, ""},
		"a read of an object": {func(r *record) {
			r.phases[0].calls = append(r.phases[0].calls, Call{Verb: "GET", Path: pods + "/p1-0", Status: 200})
		}, "+ GET " + pods},
		"a call that is left out":      {func(r *record) { r.phases[0].calls = r.phases[0].calls[1:] }, "- POST " + pods},
		"a call that is made twice":    {func(r *record) { r.phases[0].calls = append(r.phases[0].calls, r.phases[0].calls[1]) }, "+ DELETE " + pods + "/p1-0"},
		"a call with another body":     {func(r *record) { r.phases[0].calls[0].Body["value"] = 7.0 }, `"value":7`},
		"a call with another status":   {func(r *record) { r.phases[0].calls[1].Status = 404 }, "+ DELETE " + pods + "/p1-0 404"},
		"a list without pages":         {func(r *record) { r.phases[0].requests[pods][0].shape = "list" }, "round: pods, requests"},
		"requests in another order":    {func(r *record) { slices.Reverse(r.phases[0].requests[pods]) }, "round: pods, requests"},
		"no requests of a resource":    {func(r *record) { clear(r.phases[0].requests) }, "round: pods, requests"},
		"requests of another resource": {func(r *record) { r.phases[0].requests["/api/v1/secrets"] = r.phases[0].requests[pods] }, "round: secrets, requests"},
		"more tries in an outage": {func(r *record) {
			r.phases[1].requests[pods] = append([]request{{shape: "watch resourceVersion=LAST"}, {shape: "watch resourceVersion=LAST", status: 503}}, r.phases[1].requests[pods]...)
		}, ""},
		"another list after an outage":  {func(r *record) { r.phases[1].requests[pods][0].shape = "list" }, "outage: pods, requests"},
		"fewer calls in a burst":        {func(r *record) { r.phases[2].calls = r.phases[2].calls[2:] }, ""},
		"more calls than steps":         {func(r *record) { r.phases[2].calls = append(r.phases[2].calls, r.phases[2].calls...) }, "tidings: 4 times POST"},
		"an old value":                  {func(r *record) { slices.Reverse(r.phases[2].calls) }, "tidings: value 1 was sent after 2"},
		"a request that is never made":  {func(r *record) { r.phases[2].requests[pods][0].shape = "list" }, "never asks for: pods: list"},
		"an object too many in the end": {func(r *record) { r.end = append(r.end, "{}") }, "+ {}"},
		"an object that is not there":   {func(r *record) { r.end = nil }, `- {"name":"p1-0"}`},
	} {
		t.Run(what, func(t *testing.T) {
			got := sampleRecord("tidings")
			test.change(got)
			found := strings.Join(differences(sampleRecord("client-go"), got), "\n")
			if test.want == "" && found != "" || !strings.Contains(found, test.want) {
				t.Errorf("found:\n%s\nwant %q", found, test.want)
			}
		})
	}
}

func TestWhatIsChosenByTheServerIsNotCompared(t *testing.T) {
	one, err1 := normalizer{"ns-a"}.object([]byte(`{"metadata":{"namespace":"ns-a","uid":"1","resourceVersion":"5","ownerReferences":[{"uid":"7","name":"x"}]}}`))
	other, err2 := normalizer{"ns-b"}.object([]byte(`{"metadata":{"namespace":"ns-b","uid":"2","resourceVersion":"9","ownerReferences":[{"uid":"8","name":"x"}]}}`))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if a, b := (Call{Body: one}).String(), (Call{Body: other}).String(); a != b {
		t.Errorf("%s and %s are diffLines", a, b)
	}
	without, err := normalizer{"ns-a"}.object([]byte(`{"metadata":{"namespace":"ns-a","uid":"1","ownerReferences":[{"uid":"7","name":"x"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := (Call{Body: one}).String(), (Call{Body: without}).String(); a == b {
		t.Errorf("with and without a resourceVersion: both %s", a)
	}
}

// Whatever a controller does, the same seed is the same plan.
func TestASeedIsAPlan(t *testing.T) {
	plan := func(seed int64) (steps []step, parents map[string]Parent) {
		p := newPlan(seed)
		return slices.Concat(p.many(50, true, false), p.each(5), p.many(20, false, true), p.many(100, true, true)), p.parents
	}
	first, parents := plan(3)
	again, parentsAgain := plan(3)
	if !slices.Equal(first, again) || !maps.Equal(parents, parentsAgain) {
		t.Error("two plans of one seed are not the same")
	}
	if other, _ := plan(4); slices.Equal(first, other) {
		t.Error("plans of two seeds are the same")
	}
	did := map[operation]bool{}
	for _, s := range first {
		did[s.op] = true
	}
	if len(did) != 4 {
		t.Errorf("a plan has only %v", did)
	}
}
