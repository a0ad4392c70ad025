package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// exclusive rejects the use of two or more of these flags together, in a command and in those
// below it; why says the reason. cobra does the same in words of its own source code.
func (g *globals) exclusive(cmd *cobra.Command, why string, names ...string) {
	if !slices.ContainsFunc(names, func(name string) bool { return cmd.Flag(name) == nil }) { // none is of a command above
		cmd.MarkFlagsMutuallyExclusive(names...) // completion offers no second one
	}
	g.flagRules = append(g.flagRules, func(used *cobra.Command) error {
		if !within(used, cmd) { // its flags may have the same names
			return nil
		}
		first := ""
		for _, name := range names {
			switch flag := flagInUse(used, name); {
			case flag != "" && first != "":
				return fmt.Errorf("%s and %s cannot be combined: %s", first, flag, why)
			case flag != "":
				first = flag
			}
		}
		return nil
	})
}

// within reports whether a command is another one, or below it.
func within(cmd, other *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd == other {
			return true
		}
	}
	return false
}

// needs rejects the use of a flag without another.
func (g *globals) needs(name, other string) {
	g.flagRules = append(g.flagRules, func(cmd *cobra.Command) error {
		if used := flagInUse(cmd, name); used != "" && flagInUse(cmd, other) == "" {
			return fmt.Errorf("%s needs --%s, too", used, other)
		}
		return nil
	})
}

// flagInUse returns a flag as it is written if the command line has it, or "".
func flagInUse(cmd *cobra.Command, name string) string {
	f := cmd.Flag(name)
	switch {
	case f == nil || !f.Changed:
		return ""
	case f.Shorthand != "":
		return "--" + name + " (-" + f.Shorthand + ")"
	}
	return "--" + name
}
