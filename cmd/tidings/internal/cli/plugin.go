package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// programName is the name of the program in this project's own texts.
const programName = "tidings"

// calledAs returns what the user types to run the program that was started as path, and
// the arguments that it means. kubectl runs its plugin as kubectl-tidings, and
// kubectl_complete-tidings to complete the arguments of the plugin.
func calledAs(path string, args []string) (name string, _ []string) {
	switch strings.TrimSuffix(filepath.Base(path), ".exe") {
	case "kubectl-" + programName:
		return "kubectl " + programName, args
	case "kubectl_complete-" + programName:
		return "kubectl " + programName, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return programName, args
}

// rename makes the texts of a command and of those below it say name.
func rename(cmd *cobra.Command, name string) {
	if name == programName {
		return
	}
	if !cmd.HasParent() {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	}
	cmd.Long, cmd.Example = renamed(cmd.Long, name), renamed(cmd.Example, name)
	for _, c := range cmd.Commands() {
		rename(c, name)
	}
}

// renamed replaces the program's name at the head of command lines.
func renamed(text, name string) string {
	return strings.ReplaceAll(text, programName+" ", name+" ")
}
