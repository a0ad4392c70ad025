// Package termsafe keeps what others have written from doing anything to a terminal
// but stand there. Most names and texts in a cluster may hold any character, and
// terminals obey some: they move the cursor, change the window's title or, with
// the help of who reads along, paste commands.
package termsafe

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Line is s in one line: white space that is no blank becomes one, and what a
// terminal would obey is shown as its escape sequence in Go, as in \x1b.
func Line(s string) string {
	return shown(s, func(r rune) bool { return r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f' })
}

// Text is [Line] of each of the lines of s. Tabs stay.
func Text(s string) string {
	if harmless(s) {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		cells := strings.Split(l, "\t")
		for j, c := range cells {
			cells[j] = Line(c)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

func harmless(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, obeyed)
}

func shown(s string, blank func(rune) bool) string {
	if harmless(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s { // bytes that are not UTF-8 come as U+FFFD
		switch {
		case blank(r):
			b.WriteByte(' ')
		case !obeyed(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// obeyed says that a terminal does something else with r than to show it: control
// characters of both sets, and those that turn the direction of what follows,
// with which a text can be made to look like another.
func obeyed(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}

// JSON is a text in JSON that means the same: what encoding/json leaves of
// control characters in strings is escaped.
func JSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, left) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for _, r := range string(text) {
		if left(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

func left(r rune) bool { return r >= 0x7f && r < 0xa0 }
