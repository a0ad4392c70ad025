// Package gotool runs the go command for the programs that test other people's
// tests.
package gotool

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Output runs a command in a folder and returns what it prints.
func Output(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ModuleDir is where the module cache has a module that the one in folder needs.
func ModuleDir(folder, module string) (string, error) {
	return Output(folder, "go", "list", "-m", "-f", "{{.Dir}}", module)
}

// Overlay writes the file for go's flag -overlay that replaces files by others;
// the empty name takes a file away.
func Overlay(folder string, replace map[string]string) (string, error) {
	name := filepath.Join(folder, "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return name, os.WriteFile(name, content, 0o666)
}

// Modfile writes a go.mod for go's flag -modfile beside a go.sum: those of the
// module in folder with edits as go mod edit takes them. More lines for go.sum
// come from the modules in more.
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
