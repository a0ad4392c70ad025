package livetable

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
)

// row is the row of one version of an object. It is immutable. All cells are in one
// string, because a table has many rows and few of them are shown.
type row struct {
	key    string // namespace/name, or name
	packed string
}

// cell is a cell of a row.
type cell struct {
	kind  cellKind
	text  string // what comes before the time, if the kind is elapsed
	after string
	since int64 // Unix time in seconds
}

type cellKind byte

const (
	null    cellKind = iota
	str              // text is shown as it is
	raw              // text is a number or a boolean in JSON
	elapsed          // the time since an event, between text and after
)

// maxCell is the length in bytes at which a text is cut. An object decides how long its
// texts are, and one screen of them is sent to each caller.
const maxCell = 1024

// pack packs the cells of a row, as [table.Row.Values] returns them.
func pack(values []any) string {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			b = append(b, byte(null))
		case string:
			b = packText(append(b, byte(str)), v)
		case table.Elapsed:
			b = binary.AppendVarint(append(b, byte(elapsed)), v.Since.Unix())
			b = packText(packText(b, v.Before), v.After)
		default:
			text, err := json.Marshal(v)
			if err != nil { // not a number: NaN
				text = []byte("null")
			}
			b = packText(append(b, byte(raw)), string(text))
		}
	}
	return string(b)
}

func packText(b []byte, text string) []byte {
	if len(text) > maxCell {
		end := maxCell
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "…"
	}
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// cells returns the cells of the row in order.
func (r *row) cells(yield func(int, cell) bool) {
	rest := r.packed
	for i := 0; rest != ""; i++ {
		c := cell{kind: cellKind(rest[0])}
		rest = rest[1:]
		if c.kind == elapsed {
			since, n := varint(rest)
			c.since, rest = since, rest[n:]
		}
		if c.kind != null {
			c.text, rest = unpackText(rest)
		}
		if c.kind == elapsed {
			c.after, rest = unpackText(rest)
		}
		if !yield(i, c) {
			return
		}
	}
}

func unpackText(packed string) (text, rest string) {
	length, n := uvarint(packed)
	return packed[n : n+int(length)], packed[n+int(length):]
}

// uvarint and varint are those of encoding/binary for a string.
func uvarint(s string) (value uint64, n int) {
	for shift := 0; ; shift += 7 {
		b := s[n]
		n++
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, n
		}
	}
}

func varint(s string) (int64, int) {
	u, n := uvarint(s)
	value := int64(u >> 1)
	if u&1 != 0 {
		value = ^value
	}
	return value, n
}

// at returns one cell of the row.
func (r *row) at(column int) (found cell) {
	for i, c := range r.cells {
		if i == column {
			return c
		}
	}
	return found
}

// MarshalJSON encodes a cell: a string, a number, a boolean, null or, for a time, an
// object.
func (c cell) MarshalJSON() ([]byte, error) {
	switch c.kind {
	case str:
		return json.Marshal(c.text)
	case raw:
		return []byte(c.text), nil
	case elapsed:
		return json.Marshal(struct {
			Since  int64  `json:"since"`
			Before string `json:"before,omitempty"`
			After  string `json:"after,omitempty"`
		}{c.since, c.text, c.after})
	}
	return []byte("null"), nil
}

// size is about how much memory the row takes in a table.
func (r *row) size() int64 { return int64(len(r.key)+len(r.packed)) + rowOverhead }

const (
	rowOverhead  = 96 // a row and its entry in the map of a table
	itemOverhead = 64 // an entry of an order
)

// newRow makes the row of an object of a table.
func (t *liveTable) newRow(key, namespace string, content []byte) (*row, error) {
	made, err := t.printer.Row(content)
	if err != nil {
		return nil, err
	}
	values := made.Values()[:len(t.printer.Columns())]
	if t.withNamespace() {
		values = append([]any{namespace}, values...)
	}
	for _, f := range t.paths {
		values = append(values, f.value(content))
	}
	return &row{key: key, packed: pack(values)}, nil
}

// compareNatural compares texts by their letters, whatever their case, and by the
// numbers in them.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		if digit(a[0]) && digit(b[0]) {
			x, restA := number(a)
			y, restB := number(b)
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if x != y {
				return strings.Compare(x, y)
			}
			a, b = restA, restB
			continue
		}
		if x, y := lower(a[0]), lower(b[0]); x != y {
			return int(x) - int(y)
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// sortBytes returns a text that compares by its bytes as compareNatural compares texts: a
// number has its length before it.
func sortBytes(text string) string {
	b := make([]byte, 0, len(text)+8)
	for text != "" {
		if !digit(text[0]) {
			b, text = append(b, lower(text[0])), text[1:]
			continue
		}
		var digits string
		digits, text = number(text)
		b = append(append(b, '0', byte(len(digits)>>8), byte(len(digits))), digits...)
	}
	return string(b)
}

func digit(b byte) bool { return '0' <= b && b <= '9' }

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}

// number cuts the number at the beginning of a text, without zeros before it.
func number(text string) (digits, rest string) {
	n := 0
	for n < len(text) && digit(text[n]) {
		n++
	}
	return strings.TrimLeft(text[:n], "0"), text[n:]
}

// float is the value of a number or a boolean.
func (c cell) float() float64 {
	if c.text == "true" {
		return 1
	}
	f, _ := strconv.ParseFloat(c.text, 64)
	return f
}

// milliseconds is a time as frames have it.
func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
