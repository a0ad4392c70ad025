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

// EnvDir is the environment variable that names the folder of the programs in
// place of one in the user's cache. Programs that are in that folder are used as
// they are; others are built into it.
const EnvDir = "TIDINGS_CONTROLPLANE"

// A binary is a main package of the control plane's module, which is several
// programs under several names.
type binary struct {
	name     string // of the file
	pkg      string // folder of the main package, from the module's
	programs []string
	cold     string // how long the first build takes, for the message
}

var basic = binary{
	name:     "controlplane",
	pkg:      ".",
	programs: []string{"kube-apiserver", "etcd", "kubectl"},
	cold:     "five to nine minutes on two cores the first time, seconds later on",
}

var live = binary{
	name:     "live",
	pkg:      "./live",
	programs: []string{"kube-controller-manager", "kube-scheduler", "kwok", "kwok-stages"},
	cold:     "about a minute on two cores after the control plane, seconds later on",
}

// Build returns the folder that holds kube-apiserver, etcd and kubectl, and
// builds them if they are not there. Named as they are, the folder serves
// controller-runtime's envtest as KUBEBUILDER_ASSETS too.
//
// The folder is in the user's cache, under a name that changes with the module
// it is built from, so that every checkout on a machine shares it. Any number
// of processes may call Build at once: one builds, the others wait for it. A
// build that ctx ends leaves what it compiled in Go's build cache, and the next
// continues there. What it does, and how long it took, it says on standard
// error; when there is nothing to do it says nothing.
func Build(ctx context.Context) (string, error) { return basic.build(ctx) }

// BuildLive does as [Build] does for kube-controller-manager, kube-scheduler and
// kwok, which [WithControllers] and [WithKwok] need.
func BuildLive(ctx context.Context) (string, error) { return live.build(ctx) }

// build returns the folder that holds b's programs, and builds them if need be.
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

// buildInto puts b and the links to it into dir, unless they are there.
func (b binary) buildInto(ctx context.Context, dir string) error {
	if b.isIn(dir) {
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
	if b.isIn(dir) {
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

// isIn reports whether every program of b is in dir. They are links to b, which
// appears last, so they lead nowhere until b is complete.
func (b binary) isIn(dir string) bool {
	return !slices.ContainsFunc(b.programs, func(program string) bool {
		_, err := os.Stat(filepath.Join(dir, program))
		return err != nil
	})
}

// compile builds b from the module and puts it, with its links, into dir.
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
	// The compiler need not write the debug information that -s and -w tell
	// the linker to drop. The code is the same.
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

// hash names what b is built from: its main package, the versions of what that
// imports, the Go version and the platform.
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

// String names b's programs, as in "kube-apiserver, etcd and kubectl".
func (b binary) String() string {
	last := len(b.programs) - 1
	return strings.Join(b.programs[:last], ", ") + " and " + b.programs[last]
}

// findModule returns the folder of the control plane's module: the folder
// controlplane of the repository that the working directory is in, as it is in
// every test that go test runs.
func findModule() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the control plane's module: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, "controlplane")
		mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/tidings-io/tidings/controlplane\n") {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the control plane's module: no folder controlplane with its go.mod in %s or above; "+
				"run in a checkout of Tidings or set %s", start, EnvDir)
		}
	}
}

// kubernetesVersion is the version of Kubernetes that the module builds.
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
	// A workspace would choose other versions than the module's go.mod does,
	// and cgo is in none of the released binaries.
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	return cmd
}
