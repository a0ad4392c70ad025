package agents

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark begins each line of data. Nothing else begins with it, and no text of a cluster can
// begin a line.
const mark = "| "

// quote makes a text of a cluster harmless: it stays in its line, and each character that
// cannot be seen is shown as its escape sequence.
func quote(s string) string {
	if !strings.ContainsFunc(s, hides) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s { // bytes that are not UTF-8 come as U+FFFD
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !hides(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// hides reports whether a character controls or hides text: control and format characters,
// white space other than the blank, private ones, and variation selectors, in which text
// can be hidden.
func hides(r rune) bool {
	return !unicode.IsPrint(r) || r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef || r == '\u2800' || r == '\u3164' || r == '\u115f' || r == '\u1160' || r == '\uffa0'
}

// cut cuts a text in the middle if it is longer than n bytes, and says how much is missing.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head, tail := n*2/3, len(s)-n/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s…[%d bytes cut]…%s", s[:head], tail-head, s[tail:])
}

// cells makes a line of a table. A bar in a cell is escaped.
func cells(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		if out[i] = strings.ReplaceAll(quote(v), "|", `\|`); v == "" {
			out[i] = "-"
		}
	}
	return strings.Join(out, " | ")
}
