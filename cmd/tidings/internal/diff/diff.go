// Package diff says in a few readable lines how a Kubernetes object changed.
package diff

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// Op is what happened to a field; it is the sign that its line begins with.
type Op string

// The things that can happen to a field.
const (
	Changed Op = "~"
	Added   Op = "+"
	Removed Op = "-"
)

// Change is what happened to one field.
type Change struct {
	Op   Op
	Path string // ".spec.containers[web].image", `.metadata.labels["app.kubernetes.io/name"]`
	Old  any    // nil if Added
	New  any    // nil if Removed
}

// Hidden stands for a value that must not be shown. It is its size in bytes.
type Hidden int

// Objects lists how an object changed from one version to the next, field by
// field in the order of their names.
//
// What changes without meaning anything to a reader is left out:
// metadata.resourceVersion, metadata.managedFields, and the annotation in which
// kubectl apply repeats the object. Lists of things that have a name, a type or
// the like are compared thing by thing, wherever in the list it is. The data of
// a Secret is [Hidden]. Numbers may be [json.Number], and then differ if they are written
// differently.
func Objects(old, new map[string]any) []Change {
	d := differ{secret: new["kind"] == "Secret" && new["apiVersion"] == "v1"}
	d.maps(nil, old, new)
	return d.changes
}

type differ struct {
	changes []Change
	secret  bool
}

// path is the way to a field: strings are keys, quoted as needed; a label is the
// name of a thing in a list.
type path []any
type label string

func (p path) with(step any) path { return append(slices.Clip(p), step) }

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func (p path) String() string {
	s := ""
	for _, step := range p {
		switch step := step.(type) {
		case string:
			if plainKey.MatchString(step) {
				s += "." + step
			} else {
				s += "[" + strconv.Quote(step) + "]"
			}
		default:
			s += termsafe.Line(fmt.Sprint("[", step, "]"))
		}
	}
	return s
}

func (p path) is(keys ...any) bool { return slices.Equal(p, path(keys)) }

// lastApplied is the annotation in which kubectl apply repeats the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// noise says whether a field is not worth a reader's time.
func (p path) noise() bool {
	return p.is("metadata", "resourceVersion") || p.is("metadata", "managedFields") ||
		p.is("metadata", "annotations", lastApplied)
}

// withoutNoise returns the value of a field without what is noise in it, nil if that is
// all of it.
func (p path) withoutNoise(v any) any {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 || len(p) > 2 || len(p) > 0 && p[0] != "metadata" {
		return v
	}
	out := make(map[string]any, len(m))
	for k, field := range m {
		if next := p.with(k); !next.noise() {
			if clean := next.withoutNoise(field); clean != nil || field == nil {
				out[k] = clean
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (d *differ) value(p path, old, new any) {
	if p.noise() || reflect.DeepEqual(old, new) {
		return
	}
	if d.hides(p) && len(p) == 2 {
		d.changes = append(d.changes, Change{Changed, p.String(), hidden(old), hidden(new)})
		return
	}
	switch o := old.(type) {
	case map[string]any:
		if n, ok := new.(map[string]any); ok {
			d.maps(p, o, n)
			return
		}
	case []any:
		if n, ok := new.([]any); ok {
			d.lists(p, o, n)
			return
		}
	}
	d.changes = append(d.changes, Change{Changed, p.String(), d.shown(p, old), d.shown(p, new)})
}

// hides reports whether a field is data of a Secret, or a part of it.
func (d *differ) hides(p path) bool {
	return d.secret && len(p) > 0 && (p[0] == "data" || p[0] == "stringData")
}

// shown returns what may be shown of a value.
func (d *differ) shown(p path, v any) any {
	if d.hides(p) && v != nil {
		return hidden(v)
	}
	return p.withoutNoise(v)
}

func (d *differ) maps(p path, old, new map[string]any) {
	keys := slices.Collect(maps.Keys(old))
	for k := range new {
		if _, both := old[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		o, inOld := old[k]
		n, inNew := new[k]
		switch {
		case !inOld:
			d.one(Added, p.with(k), n)
		case !inNew:
			d.one(Removed, p.with(k), o)
		default:
			d.value(p.with(k), o, n)
		}
	}
}

// lists compares lists of named things by name, and others by position after
// what they have in common at both ends.
func (d *differ) lists(p path, old, new []any) {
	if key := commonKey(old, new); key != "" {
		d.named(p, key, old, new)
		return
	}
	start := 0
	for start < min(len(old), len(new)) && reflect.DeepEqual(old[start], new[start]) {
		start++
	}
	oldEnd, newEnd := len(old), len(new)
	for oldEnd > start && newEnd > start && reflect.DeepEqual(old[oldEnd-1], new[newEnd-1]) {
		oldEnd, newEnd = oldEnd-1, newEnd-1
	}
	for i := start; i < max(oldEnd, newEnd); i++ {
		switch {
		case i >= oldEnd:
			d.one(Added, p.with(i), new[i])
		case i >= newEnd:
			d.one(Removed, p.with(i), old[i])
		default:
			d.value(p.with(i), old[i], new[i])
		}
	}
}

func (d *differ) named(p path, key string, old, new []any) {
	before, after := byName(key, old), byName(key, new)
	count := len(d.changes)
	for _, l := range before.names {
		if n, ok := after.things[l]; ok {
			d.value(p.with(l), before.things[l], n)
		} else {
			d.one(Removed, p.with(l), before.things[l])
		}
	}
	for _, l := range after.names {
		if _, ok := before.things[l]; !ok {
			d.one(Added, p.with(l), after.things[l])
		}
	}
	if len(d.changes) == count && !slices.Equal(before.names, after.names) {
		d.changes = append(d.changes, Change{Changed, p.String(), before.list(), after.list()})
	}
}

// one records a field that has come or gone. An object of any size is told field
// by field.
func (d *differ) one(op Op, p path, v any) {
	if p.noise() {
		return
	}
	all := withoutNulls(v)
	if v = p.withoutNoise(all); v == nil && all != nil {
		return
	}
	if m, ok := v.(map[string]any); ok && len(m) > 0 && (d.secret && len(p) == 1 || len(compact(v)) > wide) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			d.one(op, p.with(k), m[k])
		}
		return
	}
	c := Change{Op: op, Path: p.String(), New: d.shown(p, v)}
	if op == Removed {
		c.Old, c.New = c.New, nil
	}
	d.changes = append(d.changes, c)
}

// commonKey is the field by which the elements of both lists can be told apart,
// if there is one.
func commonKey(lists ...[]any) string {
	for _, key := range []string{"name", "type", "key", "uid", "containerPort", "port", "mountPath", "ip", "topologyKey"} {
		if !slices.ContainsFunc(lists, func(l []any) bool { return len(byName(key, l).names) != len(l) }) {
			return key
		}
	}
	return ""
}

type things struct {
	names  []label
	things map[label]any
}

// byName sorts a list out; elements that have no name, or another's, are not in
// the result.
func byName(key string, list []any) things {
	t := things{things: make(map[label]any, len(list))}
	for _, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			continue
		}
		switch m[key].(type) {
		case string, int64, float64, json.Number:
		default:
			continue
		}
		l := label(fmt.Sprint(m[key]))
		if _, twice := t.things[l]; !twice {
			t.names = append(t.names, l)
			t.things[l] = v
		}
	}
	return t
}

func (t things) list() []any {
	var out []any
	for _, l := range t.names {
		out = append(out, string(l))
	}
	return out
}
