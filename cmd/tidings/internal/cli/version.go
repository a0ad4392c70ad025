package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The linker sets these in the binaries of a release (test/tools/dist). A program that
// "go install" or "go build" made has them in its build information instead.
var version, commit, date string

// build identifies the program.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`   // unknown if "go install" took the source from a module proxy
	Date     string `json:"date,omitempty"`     // of the commit
	Modified bool   `json:"modified,omitempty"` // built with changes to the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if version != "" {
		b.Version, b.Commit, b.Date = version, commit, date
		return b
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is the output of --version.
func (b build) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "tidings %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	if b.Commit != "" {
		fmt.Fprintf(&s, "commit %s", b.Commit)
		if b.Date != "" {
			fmt.Fprintf(&s, " of %s", b.Date)
		}
		if b.Modified {
			s.WriteString(", with changes")
		}
		s.WriteString("\n")
	}
	return s.String()
}

func newVersion(g *globals) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of tidings",
		Long: `Version prints the version of the program, the commit it was built from and the
date of that commit, the version of Go and the platform. The commit is unknown if
"go install" took the source from a module proxy.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			switch output {
			case "":
				_, err := fmt.Fprint(g.streams.Out, b)
				return err
			case "json":
				encodeJSON(g.streams.Out, "", b)
				return nil
			case "yaml":
				text, err := yaml.Marshal(b)
				if err != nil {
					return err
				}
				_, err = g.streams.Out.Write(text)
				return err
			}
			return unknownOutput(output, "json", "yaml")
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml, for programs")
	complete(cmd, "output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
