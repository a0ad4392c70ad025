package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/klog/v2"

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
	g := &globals{streams: streams, setLogger: logging}
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
	fmt.Fprintf(streams.Err, "error: %v\n", err)
	return 1
}

// brokenPipe says that the reader of our output has gone, which is its right:
// "tidings watch pods | head". (The process's own standard output does not come
// here, there the signal SIGPIPE has ended it already.)
func brokenPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
