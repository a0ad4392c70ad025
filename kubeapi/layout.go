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

// layout is how a list is sent item by item, so that none of its forms is ever in
// memory as a whole.
type layout struct {
	head, tail []byte
	comma      []byte                       // between two items
	item       func([]byte) ([]byte, error) // what becomes of an item; nil: it stays. It is valid until the next.
}

// layout makes one for a list that has items, of what is in front of and behind
// them in JSON or protobuf. The JSON field of that name holds the items.
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

// yamlLayout converts each item in a list of its own, so that its lines are
// indented and folded as in the whole. Lines without indent are those of the keys.
func yamlLayout(field string, empty []byte) (layout, error) {
	converted, err := yaml.JSONToYAML(empty)
	if err != nil {
		return layout{}, fmt.Errorf("make YAML of an answer: %w", err)
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
			return nil, fmt.Errorf("make YAML of an answer: %w", err)
		}
		return bytes.TrimPrefix(out, first), nil
	}}, nil
}

// prettyLayout indents each item as deep as it is in the whole. No string has a
// line break in it that is not escaped.
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

// surelyYAML says that a JSON object can be converted to YAML, which not every one
// can: YAML is read with fewer characters, shorter keys and less depth. Of what is
// unusual, that must be tried.
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
			return false // not as an API server writes it
		}
	}
	return true
}

// surelyString returns the length of a JSON string whose opening quote is in front
// of what it is given, and whether YAML has all its characters.
func surelyString(b []byte) (n int, ok bool) {
	for n < len(b) {
		switch c := b[n]; {
		case c == '"':
			return n, true
		case c == '\\':
			if n+2 >= len(b) || b[n+1] == 'u' && b[n+2]|0x20 == 'd' { // half of a pair
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
