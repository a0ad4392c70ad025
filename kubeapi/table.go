package kubeapi

import (
	"fmt"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidings-io/tidings/mirror"
)

// tableMaker makes the Tables of one request.
type tableMaker struct {
	*call
	Printer
}

func (c *call) newTable() (*tableMaker, error) {
	t := &tableMaker{call: c, Printer: nameAndAge{}}
	if c.opts.Printer != nil {
		if p := c.opts.Printer(c.r.Context(), c.q.Target); p != nil {
			t.Printer = p
		}
	}
	return t, nil
}

// table is the JSON of a Table.
func (t *tableMaker) table(meta metav1.ListMeta, found []*mirror.Object, headed bool) ([]byte, error) {
	out := append(typeMeta("Table", t.form.group()), `,"metadata":`...)
	out = append(out, marshal(meta)...)
	out = append(out, `,"columnDefinitions":`...)
	if headed {
		out = append(out, marshal(t.Columns())...)
	} else {
		out = append(out, "null"...)
	}
	out = append(out, `,"rows":[`...)
	now := time.Now()
	for i, o := range found {
		if i > 0 {
			out = append(out, ',')
		}
		cells, err := t.Cells(o.JSON(), now)
		if err != nil {
			return nil, fmt.Errorf("show %s %s/%s in a table: %w", t.kind.gvk.Kind, o.GetNamespace(), o.GetName(), err)
		}
		out = append(append(out, `{"cells":`...), marshal(cells)...)
		out = append(out, `,"object":`...)
		switch t.form.include {
		case metav1.IncludeNone:
			out = append(out, "null"...)
		case metav1.IncludeObject:
			out = append(out, o.JSON()...)
		default:
			content, err := t.encoding(o, t.kind, t.form.partial())
			if err != nil {
				return nil, err
			}
			out = append(out, content...)
		}
		out = append(out, '}')
	}
	return append(out, "]}"...), nil
}

// nameAndAge shows what every object has.
type nameAndAge struct{}

var nameAndAgeColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

func (nameAndAge) Columns() []metav1.TableColumnDefinition { return nameAndAgeColumns }

func (nameAndAge) Cells(obj []byte, now time.Time) ([]any, error) {
	age := "<unknown>"
	if created, err := time.Parse(time.RFC3339, gjson.GetBytes(obj, "metadata.creationTimestamp").Str); err == nil {
		age = duration.HumanDuration(now.Sub(created))
	}
	return []any{gjson.GetBytes(obj, "metadata.name").Str, age}, nil
}
