// Command clientgo-tests runs client-go's own tests of its informers, stores and
// reflector against informer/clientgo.
//
// It takes the tests from the module cache, leaves out those in leftout.go, adds
// the rest to package clientgo by an overlay and runs them with the race detector.
// Tests that fail are run once more, by themselves. The repository is not changed.
//
//	go run ./cmd/clientgo-tests [-- flags of go test]
//
// Run it in the folder test/compat.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/cmd/tidings/test/compat/internal/gotool"
)

func main() {
	log.SetFlags(0)
	os.Setenv("GOWORK", "off") // go has no -modfile in a workspace
	list := flag.Bool("left-out", false, "list the tests that are left out and why, and run nothing")
	flag.Parse()
	if *list {
		for _, name := range slices.Sorted(leftOutTests()) {
			fmt.Printf("%s: %s\n", name, leftOut[name])
		}
		return
	}
	if err := run(flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	upstream, err := gotool.ModuleDir(repository, "k8s.io/client-go")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "clientgo-tests-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	target := filepath.Join(repository, "informer", "clientgo")
	replace := map[string]string{}
	ours, err := filepath.Glob(filepath.Join(target, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range ours {
		replace[file] = "" // removed: scripts/test runs our own tests
	}
	seen := map[string]bool{}
	for _, name := range files {
		source, err := os.ReadFile(filepath.Join(upstream, "tools", "cache", name))
		if err != nil {
			return err
		}
		edited, err := edit(name, source, seen)
		if err != nil {
			return err
		}
		file := filepath.Join(work, name)
		if err := os.WriteFile(file, edited, 0o666); err != nil {
			return err
		}
		replace[filepath.Join(target, name)] = file
	}
	for name := range leftOut {
		if !seen[name] {
			return fmt.Errorf("leftout.go names %s, which client-go no longer has", name)
		}
	}
	standIns := filepath.Join(work, "standins_test.go")
	if err := os.WriteFile(standIns, []byte(standInSource), 0o666); err != nil {
		return err
	}
	replace[filepath.Join(target, "standins_test.go")] = standIns
	overlay, err := gotool.Overlay(work, replace)
	if err != nil {
		return err
	}
	modfile, err := moduleFile(repository, work)
	if err != nil {
		return err
	}
	test := append([]string{"test", "-race", "-count=1", "-timeout=10m", "-modfile=" + modfile, "-overlay=" + overlay}, args...)
	printed, err := runTests(repository, test)
	if again := failed(printed); err != nil && len(again) > 0 {
		// Some tests measure time and fail on a busy machine. Run these a
		// second time, with nothing beside them.
		log.Printf("running again, by themselves: %s", strings.Join(again, ", "))
		_, err = runTests(repository, append(test, "-run=^("+strings.Join(again, "|")+")$", "-parallel=1"))
	}
	return err
}

// runTests runs go with the arguments and returns its output.
func runTests(repository string, args []string) ([]byte, error) {
	var printed bytes.Buffer
	cmd := exec.Command("go", append(args, "./informer/clientgo")...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = repository, io.MultiWriter(os.Stdout, &printed), os.Stderr
	err := cmd.Run()
	return printed.Bytes(), err
}

// failed returns the tests that failed, or nothing if the output has a failure
// that does not belong to a test.
func failed(printed []byte) (names []string) {
	for _, wrong := range []string{"panic: ", "WARNING: DATA RACE", "fatal error: "} {
		if bytes.Contains(printed, []byte(wrong)) {
			return nil
		}
	}
	for _, match := range failure.FindAllSubmatch(printed, -1) {
		names = append(names, string(match[1]))
	}
	return names
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (Test\w+)`)

// moduleFile writes the repository's go.mod with the dependencies of
// client-go's tests, which this module has.
func moduleFile(repository, work string) (string, error) {
	testify, err := gotool.Output(".", "go", "list", "-m", "-f", "{{.Version}}", "github.com/stretchr/testify")
	if err != nil {
		return "", err
	}
	modfile, err := gotool.Modfile(repository, work, "-require=github.com/stretchr/testify@"+testify, ".")
	if err != nil {
		return "", err
	}
	_, err = gotool.Output(repository, "go", "mod", "download", "-modfile="+modfile, "github.com/stretchr/testify")
	return modfile, err
}
