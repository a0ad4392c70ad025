package codec

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// validator returns a function that reports whether an encoding can be decoded to a
// T, without decoding it. It returns false if it is not sure.
func validator[T any]() func(Format, []byte) bool {
	_, dynamic := any(*new(T)).(*unstructured.Unstructured)
	var message *messageShape
	if t := reflect.TypeFor[T](); t.Implements(reflect.TypeFor[unmarshaler]()) {
		message = messageOf(t.Elem())
	}
	return func(format Format, content []byte) bool {
		if format == Protobuf {
			return message != nil && message.valid(content, 0)
		}
		// Any valid JSON can be decoded to maps, but not to the fields of a Go type.
		return dynamic && plainJSON(content) && gjson.ValidBytes(content)
	}
}

const maxDepth = 100 // more nesting than any API type has

// plainJSON reports whether JSON, if it is valid, has no number and no nesting that
// some decoders refuse.
func plainJSON(content []byte) bool {
	depth, digits := 0, 0
	for i := 0; i < len(content); i++ {
		switch c := content[i]; {
		case c == '"':
			for i++; i < len(content) && content[i] != '"'; i++ {
				if content[i] == '\\' {
					i++
				}
			}
			digits = 0
		case c >= '0' && c <= '9':
			digits++
		case digits > 0 && (c == 'e' || c == 'E' || c == '.'):
			return false
		case c == '{' || c == '[':
			depth, digits = depth+1, 0
		case c == '}' || c == ']':
			depth, digits = depth-1, 0
		default:
			digits = 0
		}
		if depth > maxDepth || digits > 18 {
			return false
		}
	}
	return true
}

// messageShape describes the encoding of a Go struct, as its protobuf tags have it.
type messageShape struct {
	fields map[protowire.Number]*fieldShape
	// custom is set if the tags do not suffice. The type's own Unmarshal decides.
	custom reflect.Type
	// quick, if not nil, accepts most valid encodings of a custom type without
	// Unmarshal.
	quick func([]byte) bool
}

type fieldShape struct {
	wire  protowire.Type
	value *messageShape // of messages
	entry *fieldShape   // of maps: the value
}

var (
	shapes   = map[reflect.Type]*messageShape{}
	shapesMu sync.Mutex
)

func messageOf(t reflect.Type) *messageShape {
	shapesMu.Lock()
	defer shapesMu.Unlock()
	return shapeOf(t)
}

// shapeOf is messageOf for callers that hold shapesMu.
func shapeOf(t reflect.Type) *messageShape {
	if m, ok := shapes[t]; ok {
		return m
	}
	m := &messageShape{fields: map[protowire.Number]*fieldShape{}}
	shapes[t] = m // before its fields, for recursive types
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		// A Timestamp of seconds and nanoseconds. All values are valid.
		m.fields[1], m.fields[2] = &fieldShape{wire: protowire.VarintType}, &fieldShape{wire: protowire.VarintType}
		return m
	case reflect.TypeFor[resource.Quantity]():
		m.quick = plainQuantity
	}
	if t.Kind() != reflect.Struct {
		m.custom = t
		return m
	}
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue // the envelope has it
		}
		var number uint64
		if len(tag) > 1 {
			number, _ = strconv.ParseUint(tag[1], 10, 29)
		}
		shape := fieldOf(field.Type)
		if number == 0 || shape == nil {
			m.custom = t
			return m
		}
		m.fields[protowire.Number(number)] = shape
	}
	return m
}

// fieldOf returns the shape of a field of type t, or nil if it does not know the
// type. It goes by the Go type: the wire type in the tag is not always right.
func fieldOf(t reflect.Type) *fieldShape {
	own := func(t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]()) }
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !own(t) {
		t = t.Elem()
	}
	switch {
	case own(t):
		return &fieldShape{wire: protowire.BytesType, value: shapeOf(t)}
	case t.Kind() == reflect.String, t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return &fieldShape{wire: protowire.BytesType}
	case t.Kind() == reflect.Bool, t.Kind() == reflect.Int32, t.Kind() == reflect.Int64:
		return &fieldShape{wire: protowire.VarintType}
	case t.Kind() == reflect.Float64:
		return &fieldShape{wire: protowire.Fixed64Type}
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		if entry := fieldOf(t.Elem()); entry != nil && entry.wire == protowire.BytesType {
			return &fieldShape{wire: protowire.BytesType, entry: entry}
		}
	}
	return nil
}

// valid reports whether a message at this depth of the object can be decoded.
func (m *messageShape) valid(message []byte, depth int) bool {
	if depth > maxDepth {
		return false
	}
	if m.quick != nil && m.quick(message) {
		return true
	}
	if m.custom != nil {
		into, ok := reflect.New(m.custom).Interface().(unmarshaler)
		return ok && into.Unmarshal(message) == nil
	}
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		field := m.fields[number]
		if field != nil && field.wire != wire || wire == protowire.StartGroupType {
			return false // not the wire type of the Go field
		}
		if wire != protowire.BytesType || field == nil { // an unknown field is newer than the Go type
			if n = protowire.ConsumeFieldValue(number, wire, message); n < 0 {
				return false
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 || !field.valid(value, depth+1) {
			return false
		}
		message = message[n:]
	}
	return true
}

// valid reports whether the value of a length-delimited field can be decoded.
func (f *fieldShape) valid(value []byte, depth int) bool {
	switch {
	case f.value != nil:
		return f.value.valid(value, depth)
	case f.entry != nil:
		return f.validEntry(value, depth)
	}
	return true
}

// validEntry is valid for an entry of a map: the key is field 1, the value field 2.
func (f *fieldShape) validEntry(entry []byte, depth int) bool {
	for len(entry) > 0 {
		number, wire, n := protowire.ConsumeTag(entry)
		if n < 0 || wire != protowire.BytesType || number > 2 {
			return false
		}
		value, size := protowire.ConsumeBytes(entry[n:])
		if size < 0 || number == 2 && !f.entry.valid(value, depth) {
			return false
		}
		entry = entry[n+size:]
	}
	return true
}

// plainQuantity reports whether the message is a quantity like 250m, 2 or 128Mi:
// field 1, a string.
func plainQuantity(message []byte) bool {
	if len(message) < 3 || message[0] != 1<<3|byte(protowire.BytesType) || int(message[1]) != len(message)-2 {
		return false
	}
	text := message[2:]
	digits := 0
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 12 {
		return false
	}
	switch string(text[digits:]) {
	case "", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti":
		return true
	}
	return false
}
