package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tidings-io/tidings/internal/plain"
)

// screen writes a command's output, remarks and progress without mixing them up.
// It may be used from several goroutines.
type screen struct {
	streams IO
	colour  bool

	mu       sync.Mutex
	out      *bufio.Writer
	progress bool // a progress line stands on Err
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

// print lets f write to the output, all in one piece. The error is the output's,
// perhaps that of an earlier print; after it nothing is written any more.
func (s *screen) print(flush bool, f func(w io.Writer)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.wipe()
	f(s.out)
	if flush {
		s.out.Flush()
	}
	// Writing nothing returns the error that stuck.
	_, s.err = s.out.Write(nil)
	return s.err
}

// flush writes out what earlier prints left.
func (s *screen) flush() error { return s.print(true, func(io.Writer) {}) }

// say writes a remark to Err.
func (s *screen) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprintln(s.streams.Err, plain.Text(text))
}

// remarks is a writer of whole lines to Err.
func (s *screen) remarks() io.Writer { return remarks{s} }

type remarks struct{ *screen }

func (r remarks) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wipe()
	return r.streams.Err.Write(line)
}

// showProgress replaces the progress line; only a terminal shows it. Empty takes
// it away.
func (s *screen) showProgress(text string) {
	if !s.streams.ErrTerminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	if text != "" {
		fmt.Fprint(s.streams.Err, plain.Line(text))
		s.progress = true
	}
}

// wipe takes the progress line away.
func (s *screen) wipe() {
	if s.progress {
		fmt.Fprint(s.streams.Err, "\r\x1b[K")
		s.progress = false
	}
}

// paint colours a text on a terminal.
func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Colours, as ANSI knows them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)
