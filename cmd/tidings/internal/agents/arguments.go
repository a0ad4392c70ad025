package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// given are the arguments of a call.
type given struct {
	texts map[string]string
	lists map[string][]string
	ints  map[string]int
	flags map[string]bool
}

// Sizes of arguments.
const (
	maxText = 1 << 10
	maxList = 16
)

// wrong is an error that the caller can correct.
type wrong string

func (w wrong) Error() string { return string(w) }

func wrongf(format string, args ...any) error { return wrong(fmt.Sprintf(format, args...)) }

// parse parses the arguments of a call. A number or a boolean may be written as a text, and
// a list as a text with commas, as models sometimes do.
func (t tool) parse(raw json.RawMessage) (given, error) {
	g := given{map[string]string{}, map[string][]string{}, map[string]int{}, map[string]bool{}}
	values := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &values); err != nil {
			return g, wrongf("the arguments are not a JSON object; %s takes: %s", t.name, strings.Join(t.takes(), ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(t.takes(), name) {
			return g, wrongf("%s takes no argument %q; it takes: %s", t.name, quote(cut(name, 60)), strings.Join(t.takes(), ", "))
		}
		if string(values[name]) == "null" {
			continue
		}
		if err := g.set(name, arguments[name], values[name]); err != nil {
			return g, err
		}
	}
	for _, name := range t.required {
		if g.texts[name] == "" {
			return g, wrongf("%s needs %s: %s", t.name, name, arguments[name].text)
		}
	}
	return g, nil
}

func (g given) set(name string, a argument, raw json.RawMessage) error {
	bad := func() error {
		article := "a"
		if a.kind == "integer" {
			article = "an"
		}
		return wrongf("%s: %s is not %s %s: %s", name, quote(cut(string(raw), 60)), article, a.kind, a.text)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return bad()
	}
	if n, ok := v.(json.Number); ok && a.kind == "string" {
		v = n.String() // a version
	}
	text, isText := v.(string)
	if len(text) > maxText || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return wrongf("%s: it may have %d bytes of text, and has %d", name, maxText, len(text))
	}
	text = strings.TrimSpace(text)
	switch a.kind {
	case "string":
		if !isText && text == "" {
			return bad()
		}
		g.texts[name] = text
	case "integer":
		if number, ok := v.(json.Number); ok {
			text = number.String()
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return bad()
		}
		g.ints[name] = n
	case "boolean":
		b, ok := v.(bool)
		if !ok {
			var err error
			if b, err = strconv.ParseBool(text); err != nil {
				return bad()
			}
		}
		g.flags[name] = b
	case "list":
		list, ok := v.([]any)
		if isText {
			for part := range strings.SplitSeq(text, ",") {
				list = append(list, part)
			}
		} else if !ok {
			return bad()
		}
		for _, one := range list {
			s, ok := one.(string)
			if s = strings.TrimSpace(s); !ok || len(s) > maxText || strings.ContainsAny(s, ",\x00") {
				return bad()
			}
			if s != "" {
				g.lists[name] = append(g.lists[name], s)
			}
		}
		if len(g.lists[name]) > maxList {
			return wrongf("%s: %d are named, and %d may be", name, len(g.lists[name]), maxList)
		}
	}
	return nil
}

// number returns an integer within bounds.
func (g given) number(name string, otherwise, least, most int) (int, error) {
	n, ok := g.ints[name]
	switch {
	case !ok:
		return otherwise, nil
	case n < least || n > most:
		return 0, wrongf("%s: %d is not between %d and %d", name, n, least, most)
	}
	return n, nil
}
