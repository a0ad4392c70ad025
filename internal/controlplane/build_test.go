//go:build unix

package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
)

// prebuilt returns a new folder with a file for each program.
func prebuilt(t *testing.T) string {
	dir := t.TempDir()
	for _, program := range coreBinary.programs {
		if err := os.WriteFile(filepath.Join(dir, program), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuildUsesTheFolderOfTheEnvironment(t *testing.T) {
	dir := prebuilt(t)
	t.Setenv(EnvDir, dir)
	got, err := Build(t.Context())
	if err != nil || got != dir {
		t.Errorf("Build: %s, %v, want %s as the environment says", got, err, dir)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(coreBinary.programs) {
		t.Errorf("Build left %v (error %v) in a folder that had all programs", entries, err)
	}
}

func TestBuildOutsideOfACheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	if dir, err := Build(t.Context()); err == nil {
		t.Errorf("Build returned %s where there is nothing to build from", dir)
	}
}

// Links to a missing binary do not count.
func TestUnfinishedBuildIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	for _, program := range coreBinary.programs {
		if err := os.Symlink(coreBinary.name, filepath.Join(dir, program)); err != nil {
			t.Fatal(err)
		}
	}
	if coreBinary.isBuilt(dir) {
		t.Error("a folder of links to nothing counts as built")
	}
	if err := os.WriteFile(filepath.Join(dir, coreBinary.name), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if !coreBinary.isBuilt(dir) {
		t.Error("a folder with the binary and its links does not count as built")
	}
}

func TestHashChangesWithWhatIsBuilt(t *testing.T) {
	module := t.TempDir()
	hash := func() string {
		sum, err := coreBinary.hash(module)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\n")
	write("go.sum", "")
	seen := map[string]string{hash(): "nothing"}
	for _, change := range []struct{ name, content string }{
		{"main.go", "package main"},
		{"main.go", "package main // changed"},
		{"other.go", ""},
		{"go.sum", "example.com/n v1.0.0 h1:changed\n"},
		{"go.mod", "module example.com/n\n"},
	} {
		write(change.name, change.content)
		sum := hash()
		if before, ok := seen[sum]; ok {
			t.Errorf("the hash is the same after a change of %s as after one of %s", change.name, before)
		}
		seen[sum] = change.name
	}
	before := hash()
	write("README.md", "nothing is built from this")
	write("controllers/main.go", "another binary is built from this")
	if hash() != before {
		t.Error("the hash changes with a file that the binary is not built from")
	}
	if sum, err := controllersBinary.hash(module); err != nil || sum == before {
		t.Errorf("the hash of another binary is %s (error %v), the same", sum, err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lockFile(t.Context(), path, func() { t.Error("waited for a lock that is free") })
	if err != nil {
		t.Fatal(err)
	}

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*pollInterval)
		defer cancel()
		waited := 0
		if _, err := lockFile(ctx, path, func() { waited++ }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("locked a locked file: %v, want to wait until the deadline", err)
		}
		if waited != 1 {
			t.Errorf("waiting was called %d times, want once", waited)
		}

		got := make(chan error)
		go func() {
			second, err := lockFile(t.Context(), path, first.unlock)
			if err == nil {
				second.unlock()
			}
			got <- err
		}()
		if err := <-got; err != nil {
			t.Errorf("after the lock was released: %v", err)
		}
	})
}
