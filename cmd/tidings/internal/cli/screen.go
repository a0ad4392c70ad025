package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// screen writes a command's output, notices and progress without mixing them. It is
// safe for concurrent use.
type screen struct {
	streams IO
	colour  bool

	mu       sync.Mutex
	out      *bufio.Writer
	progress bool // a progress line is shown on Err
	err      error
}

func newScreen(streams IO) *screen {
	return &screen{
		streams: streams,
		// https://no-color.org
		colour: streams.OutTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		out:    bufio.NewWriterSize(streams.Out, 1<<16),
	}
}

// print lets f write to the output without interruption. It returns the first
// error of the output. After an error it writes nothing.
func (s *screen) print(flush bool, f func(w io.Writer)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.clearProgress()
	f(s.out)
	if flush {
		s.out.Flush()
	}
	// An empty write returns the writer's sticky error.
	_, s.err = s.out.Write(nil)
	return s.err
}

// flush writes buffered output.
func (s *screen) flush() error { return s.print(true, func(io.Writer) {}) }

// notice writes a line to Err.
func (s *screen) notice(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearProgress()
	fmt.Fprintln(s.streams.Err, termsafe.Text(text))
}

// logWriter returns a writer of whole lines to Err.
func (s *screen) logWriter() io.Writer { return logWriter{s} }

type logWriter struct{ *screen }

func (r logWriter) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clearProgress()
	return r.streams.Err.Write(line)
}

// showProgress replaces the progress line on a terminal. An empty text removes it.
func (s *screen) showProgress(text string) {
	if !s.streams.ErrTerminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearProgress()
	if text != "" {
		fmt.Fprint(s.streams.Err, termsafe.Line(text))
		s.progress = true
	}
}

// clearProgress removes the progress line.
func (s *screen) clearProgress() {
	if s.progress {
		fmt.Fprint(s.streams.Err, "\r\x1b[K")
		s.progress = false
	}
}

// paint colours text if Out is a terminal.
func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// ANSI colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)
