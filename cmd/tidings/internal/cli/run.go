package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	// kubeconfig users that log in through plugins
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

// IO is where a command writes.
type IO struct {
	Out, Err io.Writer
	// In is the standard input; nil if there is none.
	In io.Reader
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
	name, args := calledAs(os.Args[0], os.Args[1:])
	width, _, _ := term.GetSize(int(os.Stdout.Fd()))
	return run(ctx, IO{
		In:  os.Stdin,
		Out: os.Stdout, OutTerminal: term.IsTerminal(int(os.Stdout.Fd())), OutWidth: width,
		Err: os.Stderr, ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}, name, args, func(l *slog.Logger) {
		slog.SetDefault(l) // also of package log
		klog.SetSlogLogger(l)
	})
}

// Run runs one command until it finishes or ctx ends, and returns the exit code: 0
// for success, 1 for an error, which it writes to Err (2 if the command is diff). A watch that ctx ended and an
// Out that was closed by its reader (EPIPE) are successes.
func Run(ctx context.Context, streams IO, args ...string) int {
	return run(ctx, streams, programName, args, nil)
}

// run is Run for a program that its user calls name. logging, if not nil, sets the
// logger of libraries that use a global one.
func run(ctx context.Context, streams IO, name string, args []string, logging func(*slog.Logger)) int {
	g := &globals{streams: streams, screen: newScreen(streams), setLogger: logging}
	root := newRoot(g)
	rename(root, name)
	root.SetArgs(args)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	command, err := root.ExecuteContextC(ctx)
	code := 1
	if command.Name() == "diff" {
		code = 2
	}
	switch {
	case err == nil, brokenPipe(err):
		return 0
	case err == errDiffers:
		return 1
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		// The user interrupted it and needs no message.
		return 130
	}
	for _, text := range g.failures(err) {
		if g.logErrors {
			g.log.Error("stopped", "err", strings.TrimPrefix(text, "error: "))
			continue
		}
		// Hints are quoted command lines.
		g.screen.notice(strings.ReplaceAll(text, `"`+programName+" ", `"`+name+" "))
	}
	return code
}

// brokenPipe reports whether the reader of the output has gone, as in "tidings
// watch pods | head". On the process's own standard output, SIGPIPE ends the process
// instead.
func brokenPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
