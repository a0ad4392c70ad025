package cli

import (
	"bytes"
	"io"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// textWriter writes to the output of a screen.
type textWriter struct {
	screen *screen
	// safe, if not nil, makes whole lines harmless to a terminal.
	safe func([]byte) []byte
	line []byte // the beginning of a line whose end is to come
}

func safeText(p []byte) []byte { return []byte(termsafe.Text(string(p))) }

func (t *textWriter) Write(p []byte) (int, error) {
	text := p
	if t.safe != nil {
		t.line = append(t.line, p...)
		whole := bytes.LastIndexByte(t.line, '\n') + 1
		text = t.safe(bytes.Clone(t.line[:whole]))
		t.line = append(t.line[:0], t.line[whole:]...)
	}
	if err := t.screen.print(false, func(w io.Writer) { _, _ = w.Write(text) }); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes what is left to the output.
func (t *textWriter) flush() error {
	rest := t.line
	t.line = nil
	if t.safe != nil {
		rest = t.safe(rest)
	}
	return t.screen.print(true, func(w io.Writer) { _, _ = w.Write(rest) })
}
