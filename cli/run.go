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

	"github.com/tidings-io/tidings/internal/plain"

	// kubeconfig users that log in through plugins
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

// IO is where a command writes.
type IO struct {
	Out, Err io.Writer
	// OutTerminal and ErrTerminal say that a person reads along: there are
	// colours on the one, and progress on the other.
	OutTerminal, ErrTerminal bool
}

// Main runs the program with the process's arguments and streams and returns its
// exit code. An interrupt ends it in good order, a second one at once.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return run(ctx, IO{
		Out: os.Stdout, OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		Err: os.Stderr, ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}, os.Args[1:], klog.SetSlogLogger)
}

// Run runs one command until it is done or ctx ends, and returns the exit code:
// 0 for success, which includes a watch that ctx has ended and an Out that
// nobody reads any more (EPIPE), and 1 for an error, which is on Err.
func Run(ctx context.Context, streams IO, args ...string) int {
	return run(ctx, streams, args, nil)
}

// run is Run; logging, if not nil, gets the logger for libraries that log to a
// global one.
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
		// The user knows: the interrupt was theirs.
		return 130
	}
	fmt.Fprintln(streams.Err, "error:", plain.Text(brief(err)))
	return 1
}

// brief is an error for people: without the long URLs that Go's HTTP client puts
// into its own. What was asked of which cluster stands around them.
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

// brokenPipe says that the reader of our output has gone, which is its right:
// "tidings watch pods | head". (The process's own standard output does not come
// here, there the signal SIGPIPE has ended it already.)
func brokenPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
