package table_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
)

// Every path of a column of a custom resource gives cells and never a panic, whatever the
// object.
func FuzzColumns(f *testing.F) {
	objects := []string{
		`{"spec":{"a":1,"b":null,"c":[1,null,{"d":"x"},[2]],"e":{},"f":true,"g":1.5},"status":{"conditions":[{"type":"Ready","status":"True"},null,5]}}`,
		`{"spec":[],"status":null}`, `{}`,
	}
	for _, path := range []string{
		".spec.a", ".spec.b", ".spec.c[*]", ".spec.c[1]", ".spec.c[-1]", ".spec.c[5]", ".spec.c[0:9:2]", ".spec.c[::0]", ".spec.c[?(@.d=='x')].d", ".status.conditions[?(@.type==\"Ready\")].status",
		"..", "..*", ".spec..d", ".spec.*", "[?(@.a)]", ".spec.c[?(@ > 1)]", "['a','b']", ".spec.c[0,1]", "range .spec.c[*]", ".a}{range .spec.c[*]}{@}{end", "end", ".a}{end}{end", "", "}", "{", "\\", ".spec\\.a",
		".spec.c[99999999999999999999]", ".spec.c[-99]", "@", "$", ".spec.e.f.g", ".spec.f", "..c..d", "[", ".spec.c[2][0]", ".spec.c[?(@.d==@.d)]", "1", "'x'", "\"x\"",
	} {
		for _, kind := range []string{"string", "integer", "date"} {
			f.Add(path, kind, objects[0])
		}
	}
	f.Fuzz(func(t *testing.T, path, kind, object string) {
		crd, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": []any{map[string]any{
			"name": "v1", "additionalPrinterColumns": []any{map[string]any{"name": "X", "type": kind, "jsonPath": path}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		columns, err := table.ColumnsOf(crd, "v1")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range append(objects, object) {
			p := table.For(gvk("example.com/v1", "Custom"), columns)
			cells, err := p.Cells([]byte(o), time.Unix(0, 0))
			if err != nil {
				continue
			}
			if len(cells) != len(p.Columns()) {
				t.Fatalf("%d cells in %d columns", len(cells), len(p.Columns()))
			}
			for _, c := range cells {
				switch n := c.(type) {
				case nil, string, bool, int64:
				case float64:
					if math.IsNaN(n) || math.IsInf(n, 0) {
						t.Fatalf("%v is nothing that JSON can say", n)
					}
				default:
					t.Fatalf("a cell is a %s", reflect.TypeOf(c))
				}
			}
		}
	})
}
