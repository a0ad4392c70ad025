package table

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

// object is the JSON of an object with an index of its fields, so that it need not be
// scanned for each field.
type object struct {
	root, metadata, spec, status fields

	pod        podSummary // see summary
	summarized bool
}

// fields are the fields of a JSON object, indexed at the first get.
type fields struct {
	gjson.Result
	indexed bool
	found   []field
}

// reset keeps the memory of the index if it is of a usual size, but nothing of the object.
func (f *fields) reset() {
	if clear(f.found); cap(f.found) > 128 {
		f.found = nil
	}
	*f = fields{found: f.found[:0]}
}

type field struct {
	name  string
	value gjson.Result
}

func (f *fields) get(path string) gjson.Result {
	if !f.indexed && f.IsObject() {
		f.indexed = true
		f.ForEach(func(key, value gjson.Result) bool {
			f.found = append(f.found, field{key.Str, value})
			return true
		})
	}
	name, rest, deeper := strings.Cut(path, ".")
	for i := range f.found {
		if f.found[i].name != name {
			continue
		}
		if deeper {
			return f.found[i].value.Get(rest)
		}
		return f.found[i].value
	}
	return gjson.Result{}
}

// objects are those that are not in use. An index takes more memory than most rows.
var objects = sync.Pool{New: func() any { return &object{} }}

// release gives the object back. Nothing of it may be used any more.
func (o *object) release() {
	for _, f := range []*fields{&o.root, &o.metadata, &o.spec, &o.status} {
		f.reset()
	}
	o.pod, o.summarized = podSummary{}, false
	objects.Put(o)
}

// parse parses an object, which must be released. The values of its fields refer to text,
// and must be copied to be retained.
func parse(text []byte) (*object, error) {
	o := objects.Get().(*object)
	o.root.Result = gjson.Parse(unsafe.String(unsafe.SliceData(text), len(text)))
	if !o.root.IsObject() {
		o.release()
		return nil, fmt.Errorf("read an object for a table: not a JSON object: %.20q", text)
	}
	o.metadata.Result, o.spec.Result, o.status.Result = o.root.get("metadata"), o.root.get("spec"), o.root.get("status")
	return o, nil
}

// get returns a field by its path, such as "spec.replicas".
func (o *object) get(path string) gjson.Result {
	part, rest, deeper := strings.Cut(path, ".")
	if deeper {
		switch part {
		case "metadata":
			return o.metadata.get(rest)
		case "spec":
			return o.spec.get(rest)
		case "status":
			return o.status.get(rest)
		}
	}
	return o.root.get(path)
}

// annotation returns an annotation. In a gjson path, the dots of its key would be
// separators.
func (o *object) annotation(key string) (value string, ok bool) {
	iterate(o.get("metadata.annotations"), func(k, v gjson.Result) bool {
		if k.Str == key {
			value, ok = str(v), true
		}
		return !ok
	})
	return value, ok
}

func (o *object) deleted() bool { return is(o.get("metadata.deletionTimestamp")) }

// is reports whether a field exists and is not null.
func is(r gjson.Result) bool { return r.Exists() && r.Type != gjson.Null }

// iterate visits the elements of a list or a map. It ignores other values: gjson would
// visit a null as an element.
func iterate(r gjson.Result, visit func(key, value gjson.Result) bool) {
	if r.IsArray() || r.IsObject() {
		r.ForEach(visit)
	}
}

// str copies a string, so that a cell does not retain the whole object.
func str(r gjson.Result) string { return strings.Clone(r.String()) }

// or returns a string, or otherwise if the field does not exist.
func or(r gjson.Result, otherwise string) string {
	if !is(r) {
		return otherwise
	}
	return str(r)
}

// at makes cells with the string of a field, or otherwise if it does not exist.
func at(path string, otherwise ...string) func(*object) any {
	none := strings.Join(otherwise, "")
	return func(o *object) any { return or(o.get(path), none) }
}

// orIfEmpty is at with otherwise for an empty string too.
func orIfEmpty(path, otherwise string) func(*object) any {
	return func(o *object) any { return cmp.Or(str(o.get(path)), otherwise) }
}

// number makes cells with the integer of a field, 0 if it does not exist.
func number(path string) func(*object) any {
	return func(o *object) any { return o.get(path).Int() }
}

// flag makes cells with the boolean of a field, or otherwise if it does not exist.
func flag(path string, otherwise bool) func(*object) any {
	return func(o *object) any {
		if r := o.get(path); is(r) {
			return r.Bool()
		}
		return otherwise
	}
}

// size makes cells with the number of elements of lists and maps.
func size(paths ...string) func(*object) any {
	return func(o *object) any {
		var n int64
		for _, path := range paths {
			iterate(o.get(path), func(_, _ gjson.Result) bool { n++; return true })
		}
		return n
	}
}

// of makes cells such as 2/3.
func of(part, whole string) func(*object) any {
	return func(o *object) any { return fmt.Sprintf("%d/%d", o.get(part).Int(), o.get(whole).Int()) }
}

// timeOf returns the time of a field, the zero time if it does not exist.
func timeOf(r gjson.Result) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, r.Str)
	return t
}

// ago is a cell with the time since an event, between two strings.
type ago struct {
	when          time.Time
	before, after string
}

func (a ago) at(now time.Time) string {
	if a.when.IsZero() {
		return a.before + "<unknown>" + a.after
	}
	return a.before + duration.HumanDuration(now.Sub(a.when)) + a.after
}

// since makes cells with the time since the time of a field.
func since(path string) func(*object) any {
	return func(o *object) any { return ago{when: timeOf(o.get(path))} }
}

// texts returns the elements of a list of strings.
func texts(list gjson.Result) []string {
	var out []string
	iterate(list, func(_, v gjson.Result) bool { out = append(out, str(v)); return true })
	return out
}

// each returns one field of each element of a list.
func each(list gjson.Result, field string) []string {
	var out []string
	iterate(list, func(_, v gjson.Result) bool { out = append(out, str(v.Get(field))); return true })
	return out
}

// joined makes cells with one field of each element of a list.
func joined(path, field string) func(*object) any {
	return func(o *object) any { return strings.Join(each(o.get(path), field), ",") }
}

// few joins the first elements, and counts the rest.
func few(all []string, most int, separator, none string) string {
	if len(all) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:most], separator), len(all)-most)
	}
	return cmp.Or(strings.Join(all, separator), none)
}

// pairs makes cells with a map in the form of a label selector.
func pairs(path string) func(*object) any {
	return func(o *object) any { return labels.FormatLabels(mapOf(o.get(path))) }
}

func mapOf(r gjson.Result) map[string]string {
	out := map[string]string{}
	iterate(r, func(k, v gjson.Result) bool { out[str(k)] = str(v); return true })
	return out
}

// selector makes cells with a label selector. A missing one, which selects nothing, is
// written like one that selects everything.
func selector(path string) func(*object) any {
	return func(o *object) any {
		s, err := labelSelector(o.get(path))
		if err != nil {
			return "<error>"
		}
		return metav1.FormatLabelSelector(s)
	}
}

func labelSelector(r gjson.Result) (*metav1.LabelSelector, error) {
	if !is(r) {
		return nil, nil
	}
	s := &metav1.LabelSelector{}
	return s, json.Unmarshal([]byte(r.Raw), s)
}

// condition returns the first condition of a type.
func condition(list gjson.Result, kind string) (found gjson.Result) {
	iterate(list, func(_, c gjson.Result) bool {
		if c.Get("type").Str == kind {
			found = c
		}
		return !found.Exists()
	})
	return found
}
