package livetable

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// A further column has the values of a field. It is named by the field's path, in the
// form that -o custom-columns of kubectl has: names after dots or in brackets, the index
// of an element or * for all of them, and elements by a field that they have:
//
//	.spec.nodeName
//	.metadata.labels['app.kubernetes.io/name']
//	.spec.containers[*].image
//	.status.conditions[?(@.type=="Ready")].status

const (
	// MaxFields is the number of further columns that a table may have.
	MaxFields = 8
	// MaxPath is the length of the path of one in bytes.
	MaxPath = 200
)

// step matches one step of a path at its beginning.
var step = regexp.MustCompile(`^(?:\.((?:[\w/-]|\\.)+)|\['([^'\[\]]+)'\]|\[(\d{1,6}|\*)\]|\[\?\(@\.(\w+)==["']([\w./-]*)["']\)\])`)

// fieldPath is the path of a field, as gjson has it, and its first names.
type fieldPath struct {
	gjson string
	names []string
}

// parseField parses the path of a field.
func parseField(path string) (f fieldPath, ok bool) {
	var parts []string
	for rest := path; rest != ""; {
		m := step.FindStringSubmatch(rest)
		if m == nil {
			return f, false
		}
		rest = rest[len(m[0]):]
		switch {
		case m[1] != "":
			m[2] = unescape(m[1])
			fallthrough
		case m[2] != "":
			if len(f.names) == len(parts) {
				f.names = append(f.names, m[2])
			}
			parts = append(parts, gjson.Escape(m[2]))
		case m[3] == "*":
			parts = append(parts, "#")
		case m[3] != "":
			n, _ := strconv.Atoi(m[3]) // it has digits only
			parts = append(parts, strconv.Itoa(n))
		default:
			parts = append(parts, "#("+m[4]+`=="`+m[5]+`")#`)
		}
	}
	f.gjson = strings.Join(parts, ".")
	return f, len(parts) > 0 && len(path) <= MaxPath
}

// Lookup returns what the path of a field leads to in an object, as JSON. The path has the
// form of a further column; ok is false if it has not.
func Lookup(path string, object []byte) (value gjson.Result, ok bool) {
	f, ok := parseField(path)
	if !ok {
		return value, false
	}
	return gjson.GetBytes(object, f.gjson), true
}

func unescape(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '\\' {
			i++
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// further returns the further columns that a window names, sorted, so that windows with
// the same ones share a table.
func (p Params) further(q *read.Query) ([]string, error) {
	var paths []string
	for _, name := range slices.Concat(p.Columns, p.Group, []string{p.Sort}) {
		if !isField(name) {
			continue
		}
		f, ok := parseField(name)
		switch {
		case !ok:
			return nil, mirror.Invalidf("columns: %.80q is not the path of a field of %d bytes at most, such as .spec.nodeName, .metadata.labels['app'], .spec.containers[*].image or .status.conditions[?(@.type==\"Ready\")].status", name, MaxPath)
		case isSecret(q) && !f.harmless():
			return nil, mirror.Invalidf("columns: %.80q may have the values of Secrets, which are not shown in tables", name)
		}
		paths = append(paths, name)
	}
	slices.Sort(paths)
	if paths = slices.Compact(paths); len(paths) > MaxFields {
		return nil, mirror.Invalidf("columns: %d fields are named, and %d may be", len(paths), MaxFields)
	}
	return paths, nil
}

func isField(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "[") }

func isSecret(q *read.Query) bool {
	r := q.Params().Resource
	return r.Group == "" && r.Resource == "secrets"
}

// harmless reports whether a field of a Secret has none of its values. An annotation has
// them, too: the object as it was last applied.
func (f fieldPath) harmless() bool {
	if len(f.names) == 0 {
		return false
	}
	switch f.names[0] {
	case "type", "immutable":
		return true
	case "metadata":
		return len(f.names) > 1 && f.names[1] != "annotations" && f.names[1] != "managedFields"
	}
	return false
}

// value returns the value of the field in an object: nil, a text, a number or a boolean.
// Several values are joined by commas, as kubectl prints them.
func (f fieldPath) value(content []byte) any {
	found := gjson.GetBytes(content, f.gjson)
	switch found.Type {
	case gjson.Null:
		return nil
	case gjson.True, gjson.False:
		return found.Bool()
	case gjson.Number:
		return json.Number(found.Raw)
	case gjson.String:
		return found.Str
	}
	if !strings.Contains(f.gjson, "#") {
		return found.Raw
	}
	var all []string
	size := 0
	flatten(found, &all, &size)
	if len(all) == 0 {
		return nil
	}
	return strings.Join(all, ",")
}

// flatten collects the values in arrays, up to the length of a cell.
func flatten(found gjson.Result, all *[]string, size *int) {
	if !found.IsArray() {
		*all = append(*all, found.String())
		*size += len(found.Raw)
		return
	}
	found.ForEach(func(_, one gjson.Result) bool {
		flatten(one, all, size)
		return *size <= maxCell
	})
}
