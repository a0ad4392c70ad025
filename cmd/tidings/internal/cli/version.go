package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build identifies the program.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built with changes to the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func newVersion(g *globals) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of tidings",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			switch output {
			case "":
				text := fmt.Sprintf("tidings %s (%s, %s)\n", b.Version, b.Go, b.Platform)
				if b.Commit != "" {
					text += "commit " + b.Commit + map[bool]string{true: ", with changes"}[b.Modified] + "\n"
				}
				_, err := fmt.Fprint(g.streams.Out, text)
				return err
			case "json":
				return json.NewEncoder(g.streams.Out).Encode(b)
			}
			return unknownOutput(output, "json")
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, for programs")
	complete(cmd, "output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
