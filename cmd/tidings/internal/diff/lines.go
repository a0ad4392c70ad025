package diff

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

const (
	// wide is the length of a value that is still told in one piece.
	wide = 200
	// long is where a single value is cut.
	long = 400
)

// Lines writes a change for a reader: one line, or for texts of several lines
// those of them that differ, indented.
func (c Change) Lines() []string {
	head := string(c.Op) + " " + c.Path + ":"
	old, oldText := c.Old.(string)
	new, newText := c.New.(string)
	if c.Op == Changed && oldText && newText && (strings.Contains(old, "\n") || strings.Contains(new, "\n")) {
		return append([]string{head}, changedLines(old, new)...)
	}
	switch c.Op {
	case Added:
		return []string{head + " " + show(c.New)}
	case Removed:
		return []string{head + " " + show(c.Old)}
	}
	if _, secret := c.New.(Hidden); secret {
		return []string{head + " " + show(c.Old) + " → " + show(c.New) + ", not shown"}
	}
	return []string{head + " " + show(c.Old) + " → " + show(c.New)}
}

// bare is a string that needs no quotes to be told from what is around it, nor
// from a number.
var bare = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9._/:@+-]*$|^\d[\d.]*[A-Za-z-][A-Za-z0-9._/:@+-]*$|^\d+\.\d+\.[\d.]+$`)

// show writes a value in one line.
func show(v any) string {
	switch v := v.(type) {
	case Hidden:
		return fmt.Sprintf("(%d bytes)", int(v))
	case string:
		if bare.MatchString(v) && v != "true" && v != "false" && v != "null" {
			return cut(v)
		}
	}
	return cut(compact(withoutNulls(v)))
}

// withoutNulls leaves out the fields of objects that are null: to a reader they
// are as good as absent. An object that has nothing else stays as it is.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, field := range v {
			if field != nil {
				out[k] = withoutNulls(field)
			}
		}
		if len(out) > 0 {
			return out
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutNulls(v[i])
		}
		return out
	}
	return v
}

// cut shortens what is long and takes out what could trouble a terminal.
func cut(s string) string {
	s = termsafe.Line(s)
	if runes := []rune(s); len(runes) > long {
		return fmt.Sprintf("%s… (%d characters)", string(runes[:long]), len(runes))
	}
	return s
}

// compact is v as JSON for people: without HTML's escapes.
func compact(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// changedLines shows the part of a text that is not common to both ends.
func changedLines(old, new string) []string {
	a, b := strings.Split(old, "\n"), strings.Split(new, "\n")
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	for len(a) > start && len(b) > start && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out []string
	for _, l := range a[start:] {
		out = append(out, "    - "+cut(l))
	}
	for _, l := range b[start:] {
		out = append(out, "    + "+cut(l))
	}
	return out
}

// hidden measures a value of a Secret, which is base64 in data and plain in
// stringData.
func hidden(v any) any {
	s, ok := v.(string)
	if !ok {
		return Hidden(0)
	}
	if raw, err := base64.StdEncoding.DecodeString(s); err == nil {
		return Hidden(len(raw))
	}
	return Hidden(len(s))
}
