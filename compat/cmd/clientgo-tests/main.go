// Command clientgo-tests runs client-go's own tests of its informers, stores and
// reflector against informer/clientgo.
//
// It takes the tests from the module cache, leaves out those of leftout.go, puts
// the rest into package clientgo by an overlay and runs them with the race
// detector. Nothing of client-go's is written into the repository.
//
//	go run ./cmd/clientgo-tests [-- flags of go test]
//
// It is run in the folder of the module compat.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/tidings-io/tidings/compat/internal/gotool"
)

func main() {
	log.SetFlags(0)
	list := flag.Bool("left-out", false, "list what is left out and why, and run nothing")
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
	repository, err := filepath.Abs("..")
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
		replace[file] = "" // not there: our tests are run by scripts/test
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
			return fmt.Errorf("leftout.go names %s, which client-go does not have any more", name)
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
	test := []string{"test", "-race", "-count=1", "-timeout=10m", "-modfile=" + modfile, "-overlay=" + overlay}
	cmd := exec.Command("go", append(append(test, args...), "./informer/clientgo")...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = repository, os.Stdout, os.Stderr
	return cmd.Run()
}

// moduleFile is the repository's go.mod with what client-go's tests need beside
// it, which this module has.
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
