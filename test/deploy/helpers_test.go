package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// Paths relative to this package.
const (
	root       = "../.."
	manifests  = root + "/deploy"
	chart      = manifests + "/chart"
	monitoring = chart + "/monitoring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }

// run runs a program and returns what it has printed.
func run(t *testing.T, cmd *exec.Cmd) (stdout string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, &out, &errs)
	}
	return out.String()
}

// read reads a YAML file.
func read(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		err = yaml.UnmarshalStrict(content, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// write writes a YAML file into dir.
func write(t *testing.T, dir, name string, content any) (path string) {
	t.Helper()
	encoded, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, encoded, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
