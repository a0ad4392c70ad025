package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"

	// kubeconfig users that log in through plugins
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

// IO is where a command writes.
type IO struct {
	Out, Err io.Writer
	// OutTerminal and ErrTerminal report whether the writers are terminals.
	// Out then has colours, and Err a progress line.
	OutTerminal, ErrTerminal bool
	// OutWidth is the number of columns of Out, 0 if it is no terminal.
	OutWidth int
}

// Main runs the program with the process's arguments and streams and returns its
// exit code. The first interrupt makes it finish properly, a second one kills it.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	width, _, _ := term.GetSize(int(os.Stdout.Fd()))
	return run(ctx, IO{
		Out: os.Stdout, OutTerminal: term.IsTerminal(int(os.Stdout.Fd())), OutWidth: width,
		Err: os.Stderr, ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}, os.Args[1:], klog.SetSlogLogger)
}

// Run runs one command until it finishes or ctx ends, and returns the exit code: 0
// for success, 1 for an error, which it writes to Err. A watch that ctx ended and an
// Out that was closed by its reader (EPIPE) are successes.
func Run(ctx context.Context, streams IO, args ...string) int {
	return run(ctx, streams, args, nil)
}

// run is Run. logging, if not nil, sets the logger of libraries that use a global
// one.
func run(ctx context.Context, streams IO, args []string, logging func(*slog.Logger)) int {
	g := &globals{streams: streams, screen: newScreen(streams), setLogger: logging}
	root := newRoot(g)
	root.SetArgs(args)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil, brokenPipe(err):
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		// The user interrupted it and needs no message.
		return 130
	}
	fmt.Fprintln(streams.Err, termsafe.Text(message(err)))
	return 1
}

// message formats an error for the user: each of those joined by itself.
func message(err error) string {
	var told *toldError
	if all, ok := err.(interface{ Unwrap() []error }); ok && errors.As(err, &told) {
		var lines []string
		for _, one := range all.Unwrap() {
			lines = append(lines, message(one))
		}
		return strings.Join(lines, "\n")
	}
	if errors.As(err, &told) {
		return told.message
	}
	return "error: " + brief(err)
}

// brief formats an error without the long URLs of Go's HTTP client. The errors
// around them name the request and the cluster.
func brief(err error) string {
	text := err.Error()
	var each func(error)
	each = func(err error) {
		if u, ok := err.(*url.Error); ok {
			text = strings.ReplaceAll(text, u.Error(), u.Err.Error())
		}
		switch err := err.(type) {
		case interface{ Unwrap() error }:
			if next := err.Unwrap(); next != nil {
				each(next)
			}
		case interface{ Unwrap() []error }:
			for _, next := range err.Unwrap() {
				each(next)
			}
		}
	}
	each(err)
	return text
}

// brokenPipe reports whether the reader of the output has gone, as in "tidings
// watch pods | head". On the process's own standard output, SIGPIPE ends the process
// instead.
func brokenPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
