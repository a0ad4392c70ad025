package table

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

// object is the JSON of an object, and where its fields are. To look for each by
// itself would be to read the object again for each.
type object struct {
	root, metadata, spec, status fields

	pod *podSummary // read once, see summary
}

// fields are the fields of a JSON object, found when first asked for.
type fields struct {
	gjson.Result
	found []field
}

type field struct {
	name  string
	value gjson.Result
}

func (f *fields) get(path string) gjson.Result {
	if f.found == nil && f.IsObject() {
		f.found = make([]field, 0, 16)
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

// parse reads an object. What is read out of it refers to text, and must be
// copied to be kept.
func parse(text []byte) (*object, error) {
	o := &object{}
	o.root.Result = gjson.Parse(unsafe.String(unsafe.SliceData(text), len(text)))
	if !o.root.IsObject() {
		return nil, fmt.Errorf("read an object for a table: not a JSON object: %.20q", text)
	}
	o.metadata.Result, o.spec.Result, o.status.Result = o.root.get("metadata"), o.root.get("spec"), o.root.get("status")
	return o, nil
}

// get finds a field by its path, as in "spec.replicas".
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

// annotation reads one; gjson's paths would take its dots for their own.
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

// is says that a field is there and not null.
func is(r gjson.Result) bool { return r.Exists() && r.Type != gjson.Null }

// iterate goes through a list or a map. A null is neither: gjson would take it
// for an element.
func iterate(r gjson.Result, visit func(key, value gjson.Result) bool) {
	if r.IsArray() || r.IsObject() {
		r.ForEach(visit)
	}
}

// str copies a text, so that a cell does not hold on to the whole object.
func str(r gjson.Result) string { return strings.Clone(r.String()) }

// or is a text, or something else where there is no such field.
func or(r gjson.Result, otherwise string) string {
	if !is(r) {
		return otherwise
	}
	return str(r)
}

// filled is a text, or something else where it is empty.
func filled(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// at is a cell with the text of a field, or otherwise where there is none.
func at(path string, otherwise ...string) func(*object) any {
	none := strings.Join(otherwise, "")
	return func(o *object) any { return or(o.get(path), none) }
}

// orIfEmpty is at with otherwise also for a text that is empty.
func orIfEmpty(path, otherwise string) func(*object) any {
	return func(o *object) any { return filled(str(o.get(path)), otherwise) }
}

// number is a cell with the whole number of a field, 0 where there is none.
func number(path string) func(*object) any {
	return func(o *object) any { return o.get(path).Int() }
}

// flag is a cell with the truth of a field, or otherwise where there is none.
func flag(path string, otherwise bool) func(*object) any {
	return func(o *object) any {
		if r := o.get(path); is(r) {
			return r.Bool()
		}
		return otherwise
	}
}

// size is a cell with the number of elements of lists and maps.
func size(paths ...string) func(*object) any {
	return func(o *object) any {
		var n int64
		for _, path := range paths {
			iterate(o.get(path), func(_, _ gjson.Result) bool { n++; return true })
		}
		return n
	}
}

// of is a cell like 2/3.
func of(part, whole string) func(*object) any {
	return func(o *object) any { return fmt.Sprintf("%d/%d", o.get(part).Int(), o.get(whole).Int()) }
}

// moment is the time of a field, zero where there is none.
func moment(r gjson.Result) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, r.Str)
	return t
}

// ago is a cell that tells how long ago something was, perhaps with something
// around it.
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

// since is a cell with the age of a time.
func since(path string) func(*object) any {
	return func(o *object) any { return ago{when: moment(o.get(path))} }
}

// texts are the values of a list of texts.
func texts(list gjson.Result) []string {
	var out []string
	iterate(list, func(_, v gjson.Result) bool { out = append(out, str(v)); return true })
	return out
}

// each are the texts of one field of the elements of a list.
func each(list gjson.Result, field string) []string {
	var out []string
	iterate(list, func(_, v gjson.Result) bool { out = append(out, str(v.Get(field))); return true })
	return out
}

// joined is a cell with one field of the elements of a list.
func joined(path, field string) func(*object) any {
	return func(o *object) any { return strings.Join(each(o.get(path), field), ",") }
}

// few names the first of many.
func few(all []string, most int, separator, none string) string {
	if len(all) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:most], separator), len(all)-most)
	}
	return filled(strings.Join(all, separator), none)
}

// pairs is a cell with a map as a label selector is written.
func pairs(path string) func(*object) any {
	return func(o *object) any { return labels.FormatLabels(mapOf(o.get(path))) }
}

func mapOf(r gjson.Result) map[string]string {
	out := map[string]string{}
	iterate(r, func(k, v gjson.Result) bool { out[str(k)] = str(v); return true })
	return out
}

// selector is a cell with a label selector. One that is missing selects
// nothing, and is written like one that selects everything.
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

// condition finds a condition by its type.
func condition(list gjson.Result, kind string) (found gjson.Result) {
	iterate(list, func(_, c gjson.Result) bool {
		if c.Get("type").Str == kind {
			found = c
		}
		return !found.Exists()
	})
	return found
}
