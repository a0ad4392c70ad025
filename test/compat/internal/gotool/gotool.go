// Package gotool runs the go command for the programs that run tests of other
// projects.
package gotool

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Output runs a command in a folder and returns its output.
func Output(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ModuleDir returns the folder in the module cache of a dependency of the
// module in folder.
func ModuleDir(folder, module string) (string, error) {
	return Output(folder, "go", "list", "-m", "-f", "{{.Dir}}", module)
}

// Overlay writes the file for go's flag -overlay, which replaces files by
// others. An empty name removes a file.
func Overlay(folder string, replace map[string]string) (string, error) {
	name := filepath.Join(folder, "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return name, os.WriteFile(name, content, 0o666)
}

// Modfile writes a go.mod for go's flag -modfile, and a go.sum beside it. They
// are those of the module in folder, with an edit as go mod edit takes it. The
// go.sum files of the modules in more are added.
func Modfile(folder, to, edit string, more ...string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return "", err
	}
	var sum []byte
	for _, from := range append([]string{folder}, more...) {
		lines, err := os.ReadFile(filepath.Join(from, "go.sum"))
		if err != nil {
			return "", err
		}
		sum = append(sum, lines...)
	}
	name := filepath.Join(to, "go.mod")
	if err := os.WriteFile(name, mod, 0o666); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(to, "go.sum"), sum, 0o666); err != nil {
		return "", err
	}
	_, err = Output(folder, "go", "mod", "edit", edit, name)
	return name, err
}
