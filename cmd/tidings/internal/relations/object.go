package relations

import (
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
)

// Ref names an object.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// String returns kind/name.
func (r Ref) String() string { return r.Kind + "/" + r.Name }

// groupKind is the kind without the version.
func (r Ref) groupKind() schema.GroupKind {
	gv, _ := schema.ParseGroupVersion(r.APIVersion) // an invalid one is of no group
	return schema.GroupKind{Group: gv.Group, Kind: r.Kind}
}

// Object is an object as the API server sent it. One goroutine uses it.
type Object struct {
	Ref
	json   []byte
	fields map[string]*field // at the top
}

// field is a field at the top of an object. The rules ask for many fields of one: each is found once, and
// not by going through all that is before it.
type field struct {
	gjson.Result
	members map[string]gjson.Result // nil until one is asked for
}

// NewObject returns the object that valid JSON describes. It shares the JSON's memory.
func NewObject(json []byte) Object {
	o := Object{json: json, fields: make(map[string]*field, 8)}
	gjson.Parse(unsafe.String(unsafe.SliceData(json), len(json))).ForEach(func(key, value gjson.Result) bool {
		o.fields[key.Str] = &field{Result: value}
		return true
	})
	o.Ref = Ref{
		APIVersion: o.str("apiVersion"), Kind: o.str("kind"),
		Namespace: o.str("metadata.namespace"), Name: o.str("metadata.name"), UID: o.str("metadata.uid"),
	}
	return o
}

// get returns the field of a path: names with dots between them.
func (o Object) get(path string) gjson.Result {
	top, path, nested := strings.Cut(path, ".")
	f := o.fields[top]
	switch {
	case f == nil:
		return gjson.Result{}
	case !nested:
		return f.Result
	case f.members == nil:
		f.members = map[string]gjson.Result{}
		if f.IsObject() {
			f.ForEach(func(key, value gjson.Result) bool {
				f.members[key.Str] = value
				return true
			})
		}
	}
	name, path, deeper := strings.Cut(path, ".")
	if v := f.members[name]; deeper {
		return v.Get(path)
	}
	return f.members[name]
}

// str returns a field that is text.
func (o Object) str(path string) string { return o.get(path).Str }

// labels returns the object's labels.
func (o Object) labels() map[string]string {
	out := map[string]string{}
	o.get("metadata.labels").ForEach(func(key, value gjson.Result) bool {
		out[key.Str] = value.Str
		return true
	})
	return out
}

// created is when the object was created; zero if it does not say.
func (o Object) created() time.Time {
	at, _ := time.Parse(time.RFC3339, o.str("metadata.creationTimestamp"))
	return at
}

// Owners returns the owners that the object names, the controller first.
func (o Object) Owners() (owners []Ref) {
	o.get("metadata.ownerReferences").ForEach(func(_, ref gjson.Result) bool {
		owner := Ref{APIVersion: ref.Get("apiVersion").Str, Kind: ref.Get("kind").Str, Namespace: o.Namespace, Name: ref.Get("name").Str, UID: ref.Get("uid").Str}
		if owners = append(owners, owner); ref.Get("controller").Type == gjson.True {
			last := len(owners) - 1
			copy(owners[1:], owners[:last])
			owners[0] = owner
		}
		return true
	})
	return owners
}

// stateColumns are the columns of kubectl's tables that say how an object is.
var stateColumns = map[string]bool{"Ready": true, "Status": true, "Completions": true, "Phase": true, "Replicas": true}

// State returns how the object is at a time, in the words of kubectl's table of its kind:
// "2/3" of a Deployment, "0/1 CrashLoopBackOff" of a pod. It is empty for kinds without
// such columns.
func (o Object) State(now time.Time) string {
	gv, _ := schema.ParseGroupVersion(o.APIVersion)
	p := table.For(gv.WithKind(o.Kind), &table.CRDColumns{})
	cells, err := p.Cells(o.json, now)
	if err != nil {
		return ""
	}
	var parts []string
	for i, column := range p.Columns() {
		if i < len(cells) && column.Priority == 0 && stateColumns[column.Name] {
			switch v := cells[i].(type) {
			case string:
				if v != "" && v != "<none>" {
					parts = append(parts, v)
				}
			case int64:
				if column.Name == "Ready" { // of how many, says another column
					parts = append(parts, fmt.Sprintf("%d/%d", v, o.get("spec.replicas").Int()))
				}
			}
		}
	}
	if len(parts) == 0 {
		if ready := condition(o.get("status.conditions"), "Ready"); ready.Exists() {
			if ready.Get("status").Str == "True" {
				return "Ready"
			}
			return "not Ready"
		}
		return o.str("status.phase")
	}
	return strings.Join(parts, " ")
}

// condition returns the condition of a type.
func condition(conditions gjson.Result, kind string) (found gjson.Result) {
	conditions.ForEach(func(_, c gjson.Result) bool {
		if c.Get("type").Str == kind {
			found = c
			return false
		}
		return true
	})
	return found
}
