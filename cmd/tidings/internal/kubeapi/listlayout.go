package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"
)

// layout describes how to send a list item by item, so that it is never in memory as a
// whole, in any form.
type layout struct {
	head, tail []byte
	comma      []byte                       // separates items
	item       func([]byte) ([]byte, error) // converts an item, valid until the next call; nil: unchanged
}

// layout returns the layout of a list with items, given its head and tail in JSON or
// protobuf. field is the name of the JSON field with the items.
func (f form) layout(field string, head, tail []byte) (layout, error) {
	switch {
	case f.media == asProtobuf:
		var framed []byte
		return layout{head: head, tail: tail, item: func(item []byte) ([]byte, error) {
			framed = protowire.AppendTag(framed[:0], 2, protowire.BytesType)
			framed = protowire.AppendBytes(framed, item)
			return framed, nil
		}}, nil
	case f.media == asYAML:
		return yamlLayout(field, slices.Concat(head, tail))
	case f.pretty:
		return prettyLayout(field, slices.Concat(head, tail))
	}
	return layout{head: head, tail: append(bytes.TrimSuffix(tail, newline), '\n'), comma: comma}, nil
}

var errLayout = errors.New("kubeapi: the JSON of a list has no field of items")

// yamlLayout converts each item inside a list with the same field, so that its lines are
// indented and folded as in the whole. Only the keys of the list are not indented.
func yamlLayout(field string, empty []byte) (layout, error) {
	converted, err := yaml.JSONToYAML(empty)
	if err != nil {
		return layout{}, fmt.Errorf("convert an answer to YAML: %w", err)
	}
	front, back, ok := bytes.Cut(converted, []byte("\n"+field+": []\n"))
	if !ok {
		return layout{}, errLayout
	}
	first, open := []byte(field+":\n"), []byte(`{"`+field+`":[`)
	var wrapped []byte
	return layout{head: slices.Concat(front, newline, first), tail: back, item: func(item []byte) ([]byte, error) {
		wrapped = append(append(append(wrapped[:0], open...), item...), "]}"...)
		out, err := yaml.JSONToYAML(wrapped)
		if err != nil {
			return nil, fmt.Errorf("convert an answer to YAML: %w", err)
		}
		return bytes.TrimPrefix(out, first), nil
	}}, nil
}

// prettyLayout indents each item as in the whole. Line breaks in strings are escaped.
func prettyLayout(field string, empty []byte) (layout, error) {
	open := []byte("\n  \"" + field + "\": [")
	front, back, ok := bytes.Cut(indented(bytes.TrimSuffix(empty, newline)), append(bytes.Clone(open), ']'))
	if !ok {
		return layout{}, errLayout
	}
	var b bytes.Buffer
	return layout{head: slices.Concat(front, open), tail: slices.Concat([]byte("\n  ]"), back), comma: comma, item: func(item []byte) ([]byte, error) {
		b.Reset()
		b.WriteString("\n    ")
		err := json.Indent(&b, item, "    ", "  ")
		return b.Bytes(), err
	}}, nil
}

// surelyYAML reports whether a JSON object can certainly be converted to YAML. YAML
// allows fewer characters, shorter keys and less depth than JSON. If surelyYAML returns
// false, the conversion must be tried.
func surelyYAML(object []byte) bool {
	const longKey, deep = 1000, 1000
	depth := 0
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '{', '[':
			if depth++; depth > deep {
				return false
			}
		case '}', ']':
			depth--
		case '"':
			n, ok := surelyString(object[i+1:])
			if !ok || n > longKey && bytes.HasPrefix(object[i+n+2:], []byte(":")) {
				return false
			}
			i += n + 1
		case ' ', '\t', '\n', '\r':
			return false // an API server does not write spaces
		}
	}
	return true
}

// surelyString returns the length of the JSON string that begins at b, after its opening
// quote, and whether YAML allows all its characters.
func surelyString(b []byte) (n int, ok bool) {
	for n < len(b) {
		switch c := b[n]; {
		case c == '"':
			return n, true
		case c == '\\':
			if n+2 >= len(b) || b[n+1] == 'u' && b[n+2]|0x20 == 'd' { // half of a surrogate pair
				return n, false
			}
			n += 2
		case c < ' ' || c == 0x7f:
			return n, false
		case c < utf8.RuneSelf:
			n++
		default:
			r, size := utf8.DecodeRune(b[n:])
			if r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == utf8.RuneError || r&0xfffe == 0xfffe {
				return n, false
			}
			n += size
		}
	}
	return n, false
}
