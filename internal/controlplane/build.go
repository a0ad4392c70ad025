//go:build unix

package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// EnvDir is the environment variable that names a folder of programs to use
// instead of the one in the user's cache. Programs found there are used as they
// are; missing ones are built into it.
const EnvDir = "TIDINGS_CONTROLPLANE"

// A binary is a main package of the control plane's module that contains
// several programs, told apart by the name they are called by.
type binary struct {
	name     string // of the file
	pkg      string // the folder of the main package in the module
	programs []string
	cold     string // how long the first build takes, for a message
}

var coreBinary = binary{
	name:     "controlplane",
	pkg:      ".",
	programs: []string{"kube-apiserver", "etcd", "kubectl"},
	cold:     "five to nine minutes on two cores the first time, seconds later on",
}

var controllersBinary = binary{
	name:     "controllers",
	pkg:      "./controllers",
	programs: []string{"kube-controller-manager", "kube-scheduler", "kwok", "kwok-stages"},
	cold:     "about a minute on two cores after the control plane, seconds later on",
}

// Build returns the folder of kube-apiserver, etcd and kubectl, and builds them
// if they are missing. The folder can also be the KUBEBUILDER_ASSETS of
// controller-runtime's envtest.
//
// The folder is in the user's cache. Its name changes with the module it is
// built from, so all checkouts on a machine can share it. Build may be called
// by any number of processes at once: one builds and the others wait. If ctx
// ends a build, the next one continues from Go's build cache. Build reports its
// work and the time it took on standard error. If there is nothing to do it
// prints nothing.
func Build(ctx context.Context) (string, error) { return coreBinary.build(ctx) }

// BuildControllers is [Build] for kube-controller-manager, kube-scheduler and
// kwok, which [WithControllers] and [WithKwok] need.
func BuildControllers(ctx context.Context) (string, error) { return controllersBinary.build(ctx) }

// build returns the folder of b's programs, and builds them if they are
// missing.
func (b binary) build(ctx context.Context) (string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", EnvDir, err)
		}
		return dir, b.buildInto(ctx, dir)
	}
	module, err := findModule()
	if err != nil {
		return "", err
	}
	sum, err := b.hash(module)
	if err != nil {
		return "", fmt.Errorf("hash what %s is built from: %w", b.name, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache: %w", err)
	}
	dir := filepath.Join(cache, "tidings", "controlplane", sum)
	return dir, b.buildInto(ctx, dir)
}

// buildInto builds b and the links to it in dir, unless they exist.
func (b binary) buildInto(ctx context.Context, dir string) error {
	if b.isBuilt(dir) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the control plane: %w", err)
	}
	lock, err := lockFile(ctx, filepath.Join(dir, ".lock"), func() {
		fmt.Fprintf(os.Stderr, "controlplane: another process builds %s; waiting for it\n", b)
	})
	if err != nil {
		return fmt.Errorf("wait for another process that builds %s: %w", b, err)
	}
	defer lock.unlock()
	if b.isBuilt(dir) {
		return nil
	}

	module, err := findModule()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "controlplane: building %s into %s (%s)\n", b, dir, b.cold)
	start := time.Now()
	if err := b.compile(ctx, module, dir); err != nil {
		return fmt.Errorf("build %s: %w", b, err)
	}
	fmt.Fprintf(os.Stderr, "controlplane: built %s in %s\n", b, time.Since(start).Round(time.Second))
	return nil
}

// isBuilt reports whether every program of b is in dir. The programs are links
// to b, which is put there last, so they are dangling until b is complete.
func (b binary) isBuilt(dir string) bool {
	return !slices.ContainsFunc(b.programs, func(program string) bool {
		_, err := os.Stat(filepath.Join(dir, program))
		return err != nil
	})
}

// compile builds b from the module, and puts it and its links into dir.
func (b binary) compile(ctx context.Context, module, dir string) error {
	version, err := kubernetesVersion(ctx, module)
	if err != nil {
		return err
	}
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const stamp = "-X k8s.io/component-base/version."
	ldflags := "-s -w " + stamp + "gitVersion=" + version + " " + stamp + "gitMajor=" + major + " " + stamp + "gitMinor=" + minor

	building := filepath.Join(dir, ".building-"+b.name)
	defer os.Remove(building)
	// With -s and -w the linker drops the debug information, so the compiler
	// need not write it. The code is the same.
	cmd := goCommand(ctx, module, "build", "-trimpath", "-buildvcs=false",
		"-gcflags=all=-dwarf=false", "-ldflags="+ldflags, "-o", building, b.pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", errors.Join(context.Cause(ctx), err), tail(out))
	}

	for _, program := range b.programs {
		link := filepath.Join(dir, program)
		if err := os.Symlink(b.name, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Rename(building, filepath.Join(dir, b.name))
}

// hash identifies what b is built from: its main package, the versions of its
// dependencies, the Go version and the platform.
func (b binary) hash(module string) (string, error) {
	files, err := filepath.Glob(filepath.Join(module, b.pkg, "*.go"))
	if err != nil {
		return "", err
	}
	files = append(files, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum"))
	h := sha256.New()
	fmt.Fprintln(h, b.pkg, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(file), len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// String lists b's programs, as in "kube-apiserver, etcd and kubectl".
func (b binary) String() string {
	last := len(b.programs) - 1
	return strings.Join(b.programs[:last], ", ") + " and " + b.programs[last]
}

// findModule returns the folder of the control plane's module:
// test/controlplane in the repository that contains the working directory. go
// test runs every test in its package's folder, so tests always find it.
func findModule() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the control plane's module: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, "test", "controlplane")
		mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/tidings-io/tidings/test/controlplane\n") {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the control plane's module: no folder test/controlplane with its go.mod in %s or above; "+
				"run in a checkout of Tidings or set %s", start, EnvDir)
		}
	}
}

// kubernetesVersion returns the version of Kubernetes that the module builds.
func kubernetesVersion(ctx context.Context, module string) (string, error) {
	out, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, tail(exit.Stderr))
		}
		return "", fmt.Errorf("find the version of Kubernetes: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func goCommand(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	// A workspace may select other versions than the module's go.mod does, and
	// released binaries are built without cgo.
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	return cmd
}
