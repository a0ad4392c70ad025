package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// constructor is where client-go's informers are made, and hook what is put there.
const (
	constructor = "func NewSharedIndexInformerWithOptions(lw ListerWatcher, exampleObject runtime.Object, options SharedIndexInformerOptions) SharedIndexInformer {\n"
	hook        = "\tif NewInformerHook != nil {\n\t\treturn NewInformerHook(lw, exampleObject, options)\n\t}\n"
	declaration = "\n// NewInformerHook, if it is not nil, makes the informers.\nvar NewInformerHook func(ListerWatcher, runtime.Object, SharedIndexInformerOptions) SharedIndexInformer\n"
)

// build builds the programs into the user's cache, unless they are there, and returns
// the binary.
func build(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "tidings", "kubernetes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	modfile, err := writeModfile(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("edit client-go: %w", err)
	}
	binary := filepath.Join(dir, "programs")
	if _, err := run(ctx, "go", "build", "-tags", "informerhook", "-modfile", modfile, "-o", binary, "./programs"); err != nil {
		return "", fmt.Errorf("build kube-controller-manager and kube-scheduler: %w", err)
	}
	return binary, nil
}

// writeModfile copies client-go and puts the hook into the copy. It returns a go.mod
// that takes the copy, for go's flag -modfile.
func writeModfile(ctx context.Context, dir string) (string, error) {
	module, err := run(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go")
	if err != nil {
		return "", err
	}
	edited := filepath.Join(dir, "client-go")
	if err := os.RemoveAll(edited); err != nil {
		return "", err
	}
	if err := os.CopyFS(edited, os.DirFS(module)); err != nil {
		return "", err
	}
	name := filepath.Join(edited, "tools", "cache", "shared_informer.go")
	source, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(constructor)); n != 1 {
		return "", fmt.Errorf("%s has the constructor %d times, want once: client-go has changed, and build.go must, too", name, n)
	}
	source = append(bytes.Replace(source, []byte(constructor), []byte(constructor+hook), 1), declaration...)
	if err := errors.Join(os.Remove(name), os.WriteFile(name, source, 0o644)); err != nil { // the copy is not writable
		return "", err
	}
	modfile := filepath.Join(dir, "go.mod")
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), content, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	_, err = run(ctx, "go", "mod", "edit", "-replace=k8s.io/client-go="+edited, modfile)
	return modfile, err
}

// run runs a command and returns what it prints.
func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off") // go has no -modfile in a workspace
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
