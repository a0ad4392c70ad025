package table

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
	k8sjson "sigs.k8s.io/json"
)

// CRDColumns are the columns of one version of a CustomResourceDefinition.
type CRDColumns struct {
	Columns []CRDColumn

	once sync.Once
	made *Printer
}

// CRDColumn is an element of additionalPrinterColumns. Its fields have the meaning of those
// of a CustomResourceColumnDefinition of apiextensions.k8s.io/v1.
type CRDColumn struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format"`
	Description string `json:"description"`
	Priority    int32  `json:"priority"`
	JSONPath    string `json:"jsonPath"`
}

// ColumnsOf returns the columns of one version of a CustomResourceDefinition, given its
// JSON. If it has none, tables have an age, as from the API server.
func ColumnsOf(crd []byte, version string) (*CRDColumns, error) {
	var definition struct {
		Metadata struct{ Name string } `json:"metadata"`
		Spec     struct {
			Versions []struct {
				Name    string      `json:"name"`
				Columns []CRDColumn `json:"additionalPrinterColumns"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(crd, &definition); err != nil {
		return nil, fmt.Errorf("read the columns of a CustomResourceDefinition: %w", err)
	}
	for _, v := range definition.Spec.Versions {
		if v.Name != version {
			continue
		}
		return &CRDColumns{Columns: v.Columns}, nil
	}
	return nil, fmt.Errorf("read the columns of the CustomResourceDefinition %s: it has no version %q", definition.Metadata.Name, version)
}

var ageOfCustom = CRDColumn{Name: "Age", Type: "date", Description: doc(metav1.ObjectMeta{}, "creationTimestamp"), JSONPath: ".metadata.creationTimestamp"}

// printer returns the printer of the columns. It compiles their paths once.
func (c *CRDColumns) printer() *Printer {
	c.once.Do(func() { c.made = c.compile() })
	return c.made
}

// custom is a column of a custom resource.
type custom struct {
	kind string
	mu   sync.Mutex // a path has state during an evaluation
	path *jsonpath.JSONPath
}

// compile stops at the first path that is not valid, as upstream does. The API server does
// not admit such paths.
func (c *CRDColumns) compile() *Printer {
	p := &Printer{columns: []metav1.TableColumnDefinition{name.TableColumnDefinition}}
	columns := c.Columns
	if len(columns) == 0 {
		columns = []CRDColumn{ageOfCustom}
	}
	var paths []*custom
	for _, col := range columns {
		path := jsonpath.New(col.Name).AllowMissingKeys(true)
		if err := path.Parse("{" + col.JSONPath + "}"); err != nil {
			break
		}
		paths = append(paths, &custom{kind: col.Type, path: path})
		p.columns = append(p.columns, metav1.TableColumnDefinition{
			Name: col.Name, Type: col.Type, Format: col.Format, Priority: col.Priority,
			Description: cmp.Or(col.Description, "Custom resource definition column (in JSONPath format): "+col.JSONPath),
		})
	}
	p.cells = func(o *object) ([]any, error) {
		var content map[string]any
		if err := k8sjson.UnmarshalCaseSensitivePreserveInts([]byte(o.root.Raw), &content); err != nil {
			return nil, fmt.Errorf("read an object for a table: %w", err)
		}
		cells := []any{str(o.get("metadata.name"))}
		for _, column := range paths {
			cells = append(cells, column.cell(content))
		}
		return cells, nil
	}
	return p
}

// cell returns the first result of the path, nil if there is none or it does not have the
// column's type.
func (c *custom) cell(content map[string]any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, err := c.path.FindResults(content)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	value := found[0][0].Interface()
	if c.kind == "string" {
		var text bytes.Buffer
		if err := c.path.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}); err != nil {
			return nil
		}
		return text.String()
	}
	return typed(c.kind, value)
}

func typed(kind string, value any) any {
	switch kind {
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		if text, ok := value.(string); ok {
			var t metav1.Time
			if err := t.UnmarshalQueryParameter(text); err != nil {
				return "<invalid>"
			}
			return ago{when: t.Time}
		}
	}
	return nil
}
