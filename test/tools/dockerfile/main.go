// Command dockerfile parses a Dockerfile with BuildKit's parser and prints its
// stages as JSON, for a test that runs without Docker. BuildKit's errors and
// warnings are errors.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stage is one FROM and what follows it.
type stage struct {
	Name     string        `json:"name"`
	From     string        `json:"from"`
	Commands []instruction `json:"commands"`
}

type instruction struct {
	Name  string   `json:"name"`            // in lower case
	Args  []string `json:"args"`            // for RUN, ENTRYPOINT, CMD the words, otherwise the text
	Shell bool     `json:"shell,omitempty"` // Args is a shell command line
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dockerfile FILE")
		os.Exit(2)
	}
	stages, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "dockerfile:", err)
		os.Exit(1)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(stages); err != nil {
		fmt.Fprintln(os.Stderr, "dockerfile:", err)
		os.Exit(1)
	}
}

func read(path string) ([]stage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	parsed, err := parser.Parse(f)
	if err != nil {
		return nil, err
	}
	var warned error
	warn := func(rule, _, _, message string, _ []parser.Range) {
		warned = errors.Join(warned, fmt.Errorf("%s: %s", rule, message))
	}
	for _, w := range parsed.Warnings {
		warned = errors.Join(warned, errors.New(w.Short))
	}
	stages, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{Warn: warn}))
	if err = errors.Join(err, warned); err != nil {
		return nil, err
	}
	var out []stage
	for _, s := range stages {
		o := stage{Name: s.Name, From: s.BaseName}
		for _, c := range s.Commands {
			o.Commands = append(o.Commands, instructionOf(c))
		}
		out = append(out, o)
	}
	return out, nil
}

func instructionOf(c instructions.Command) instruction {
	i := instruction{Name: strings.ToLower(c.Name())}
	switch c := c.(type) {
	case *instructions.RunCommand:
		i.Args, i.Shell = c.CmdLine, c.PrependShell
	case *instructions.EntrypointCommand:
		i.Args, i.Shell = c.CmdLine, c.PrependShell
	case *instructions.CmdCommand:
		i.Args, i.Shell = c.CmdLine, c.PrependShell
	case *instructions.UserCommand:
		i.Args = []string{c.User}
	case *instructions.CopyCommand:
		i.Args = append(append([]string{"--from=" + c.From}, c.SourcePaths...), c.DestPath)
	case fmt.Stringer:
		i.Args = []string{c.String()}
	}
	return i
}
