package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidings-io/tidings/cmd/tidings/internal/audit"
)

// auditing holds the flags of serve for the audit log. Their names are kube-apiserver's.
type auditing struct {
	file     string
	rotation audit.Rotation
}

func (a *auditing) flags(g *globals, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.file, "audit-log", "", "write to this `file`, or to standard output with -, who has read what: a line of JSON for each request, in the form of audit.k8s.io/v1 Events of level Metadata")
	f.IntVar(&a.rotation.MaxSize, "audit-log-maxsize", 100, "`megabytes` after which the file of the audit log is rotated")
	f.IntVar(&a.rotation.MaxBackups, "audit-log-maxbackup", 10, "`number` of rotated files to keep; 0: all")
	f.IntVar(&a.rotation.MaxAge, "audit-log-maxage", 0, "`days` to keep rotated files; 0: no limit")
	for _, name := range []string{"audit-log-maxsize", "audit-log-maxbackup", "audit-log-maxage"} {
		g.needs(name, "audit-log")
	}
	complete(cmd, "audit-log", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	})
}

// check rejects invalid flags.
func (a *auditing) check() error {
	switch {
	case a.rotation.MaxSize < 1:
		return fmt.Errorf("--audit-log-maxsize %d: give a number of megabytes", a.rotation.MaxSize)
	case a.rotation.MaxBackups < 0:
		return fmt.Errorf("--audit-log-maxbackup %d: give a number of files", a.rotation.MaxBackups)
	case a.rotation.MaxAge < 0:
		return fmt.Errorf("--audit-log-maxage %d: give a number of days", a.rotation.MaxAge)
	}
	return nil
}

// open opens the audit log; it is nil without --audit-log. close writes what is queued.
func (a *auditing) open(g *globals) (log *audit.Log, close func() error, err error) {
	if a.file == "" {
		return nil, func() error { return nil }, nil
	}
	out, closeFile := g.streams.Out, func() error { return nil }
	if a.file != "-" {
		f, err := audit.OpenFile(a.file, a.rotation)
		if err != nil {
			return nil, nil, fmt.Errorf("--audit-log: %w", err)
		}
		out, closeFile = f, f.Close
	}
	log = audit.New(out, audit.Options{Logger: g.log})
	return log, func() error {
		patience, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := log.Close(patience); err != nil {
			return fmt.Errorf("--audit-log: %w", err) // the file is in use
		}
		return closeFile()
	}, nil
}
