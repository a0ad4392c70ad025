package diff_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/diff"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var u map[string]any
	if err := yaml.Unmarshal([]byte(text), &u); err != nil {
		t.Fatal(err)
	}
	return u
}

func lines(old, new map[string]any) string {
	var out []string
	for _, c := range diff.Objects(old, new) {
		out = append(out, c.Lines()...)
	}
	return strings.Join(out, "\n")
}

func TestObjects(t *testing.T) {
	for name, test := range map[string]struct{ old, new, want string }{
		"a value":          {"status: {phase: Pending}", "status: {phase: Running}", `~ .status.phase: Pending → Running`},
		"noise":            {"metadata: {resourceVersion: '1', managedFields: [1], generation: 1}", "metadata: {resourceVersion: '2', managedFields: [2], generation: 2}", `~ .metadata.generation: 1 → 2`},
		"kubectl's copy":   {"metadata: {annotations: {a: x, kubectl.kubernetes.io/last-applied-configuration: '{}'}}", "metadata: {annotations: {a: z, kubectl.kubernetes.io/last-applied-configuration: '{1}'}}", `~ .metadata.annotations.a: x → z`},
		"a key with dots":  {"metadata: {labels: {}}", "metadata: {labels: {app.kubernetes.io/name: web}}", `+ .metadata.labels["app.kubernetes.io/name"]: web`},
		"text that is not": {"a: 'true'", "a: 5", `~ .a: "true" → 5`},
		"words":            {"a: one two", "a: ''", `~ .a: "one two" → ""`},
		"come and gone":    {"a: {x: 1}", "b: [1, 2]", "- .a: {\"x\":1}\n+ .b: [1,2]"},
		"another type":     {"a: {x: 1}", "a: [1]", `~ .a: {"x":1} → [1]`},
		"conditions": {
			"status: {conditions: [{type: Ready, status: 'False'}, {type: Old, status: 'True'}]}",
			"status: {conditions: [{type: New, status: 'True'}, {type: Ready, status: 'True'}]}",
			"~ .status.conditions[Ready].status: False → True\n" +
				"- .status.conditions[Old]: {\"status\":\"True\",\"type\":\"Old\"}\n" +
				"+ .status.conditions[New]: {\"status\":\"True\",\"type\":\"New\"}"},
		"another order":    {"a: [{name: x}, {name: z}]", "a: [{name: z}, {name: x}]", `~ .a: ["x","z"] → ["z","x"]`},
		"ports":            {"p: [{port: 1}, {port: 2, x: 1}]", "p: [{port: 1}, {port: 2, x: 2}]", `~ .p[2].x: 1 → 2`},
		"names not unique": {"p: [{name: a, x: 1}, {name: a, x: 2}]", "p: [{name: a, x: 1}, {name: a, x: 3}]", `~ .p[1].x: 2 → 3`},
		"in a plain list":  {"a: [1, 2, 3, 4]", "a: [1, 9, 4]", "~ .a[1]: 2 → 9\n- .a[2]: 3"},
		"finalizers":       {"a: [x]", "a: [x, z]", `+ .a[1]: z`},
		"a text":           {"data: {f: \"one\\ntwo\\nthree\\n\"}", "data: {f: \"one\\n2\\n2b\\nthree\\n\"}", "~ .data.f:\n    - two\n    + 2\n    + 2b"},
		"a large object": {"{}", "spec: {first: " + strings.Repeat("x", 110) + ", second: {third: " + strings.Repeat("y", 110) + "}}",
			"+ .spec.first: " + strings.Repeat("x", 110) + "\n+ .spec.second: {\"third\":\"" + strings.Repeat("y", 110) + "\"}"},
		"nulls":                 {"{}", "a: {x: null, v: 1, z: [{w: null}]}\nb: null", "+ .a: {\"v\":1,\"z\":[{\"w\":null}]}\n+ .b: null"},
		"an address":            {"a: 10.0.0.1", "a: '10.1'", `~ .a: 10.0.0.1 → "10.1"`},
		"a long value":          {"{}", "a: " + strings.Repeat("x", 5000), "+ .a: " + strings.Repeat("x", 400) + "… (5000 characters)"},
		"a secret changes":      {"{kind: Secret, apiVersion: v1, data: {p: Zm9v, q: Zm9v}}", "{kind: Secret, apiVersion: v1, data: {p: YmFyIQ==, q: Zm9v, r: Zg==}}", "~ .data.p: (3 bytes) → (4 bytes), not shown\n+ .data.r: (1 bytes)"},
		"a secret is new":       {"{kind: Secret, apiVersion: v1}", "{kind: Secret, apiVersion: v1, data: {p: Zm9v}}", "+ .data.p: (3 bytes)"},
		"a secret without data": {"{kind: Secret, apiVersion: v1, data: null, stringData: [x]}", "{kind: Secret, apiVersion: v1, data: {p: Zm9v}, stringData: x}", "~ .data: null → (0 bytes), not shown\n~ .stringData: (0 bytes) → (1 bytes), not shown"},
		"kubectl's copy is new": {"{kind: Secret, apiVersion: v1, metadata: {name: x}}", "{kind: Secret, apiVersion: v1, metadata: {name: x, annotations: {a: b, kubectl.kubernetes.io/last-applied-configuration: Zm9v}}}", `+ .metadata.annotations: {"a":"b"}`},
		"kubectl's copy goes":   {"metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: Zm9v}}", "{}", ""},
		"nothing":               {"a: 1", "a: 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(object(t, test.old), object(t, test.new)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// values draws JSON values as client-go decodes them.
func values() *rapid.Generator[any] {
	scalar := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(v bool) any { return v }),
		rapid.Map(rapid.Int64Range(-3, 3), func(v int64) any { return v }),
		rapid.Map(rapid.SampledFrom([]string{"", "a", "b", "x y", "l1\nl2", "l1\nl3"}), func(v string) any { return v }))
	return rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(scalar, scalar,
			rapid.Map(rapid.MapOfN(keys(), values(), 0, 3), func(v map[string]any) any { return v }),
			rapid.Map(rapid.SliceOfN(values(), 0, 3), func(v []any) any { return v }))
	})
}

func keys() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"name", "type", "spec", "a.b", "c", "metadata", "annotations"})
}

// There is a change exactly if the objects differ, no field is told twice, and
// the way back is the same with the signs turned round.
func TestObjectsTellsAllAndOnlyDifferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := rapid.MapOfN(keys(), values(), 0, 5)
		a, b := objects.Draw(t, "a"), objects.Draw(t, "b")
		forth, back := diff.Objects(a, b), diff.Objects(b, a)
		if (len(forth) > 0) == reflect.DeepEqual(a, b) {
			t.Fatalf("%v", forth)
		}
		count := func(changes []diff.Change) map[diff.Op]int {
			n, seen := map[diff.Op]int{}, map[string]bool{}
			for _, c := range changes {
				if n[c.Op]++; seen[c.Path] {
					t.Fatalf("%s is told twice", c.Path)
				}
				seen[c.Path] = true
				if len(c.Lines()) == 0 {
					t.Fatalf("%+v has no lines", c)
				}
			}
			n[diff.Added], n[diff.Removed] = n[diff.Removed], n[diff.Added]
			return n
		}
		f, r := count(forth), count(back)
		r[diff.Added], r[diff.Removed] = r[diff.Removed], r[diff.Added]
		if !reflect.DeepEqual(f, r) {
			t.Fatalf("there %v and back %v", forth, back)
		}
	})
}

func FuzzObjects(f *testing.F) {
	f.Add(`{"a":[{"name":1},{"name":"1"}]}`, `{"a":[{"name":1}]}`)
	f.Add(`{"kind":"Secret","apiVersion":"v1","data":[]}`, `{"kind":"Secret","apiVersion":"v1","data":{"x":null}}`)
	f.Fuzz(func(t *testing.T, old, new string) {
		var a, b map[string]any
		if json.Unmarshal([]byte(old), &a) != nil || json.Unmarshal([]byte(new), &b) != nil {
			return
		}
		a, b = runtime.DeepCopyJSON(a), runtime.DeepCopyJSON(b)
		for _, c := range diff.Objects(a, b) {
			if len(c.Lines()) == 0 {
				t.Fatalf("%+v has no lines", c)
			}
		}
		for _, c := range diff.Objects(b, b) {
			t.Fatalf("%+v", c)
		}
	})
}
