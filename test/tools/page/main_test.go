package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The bundle in the repository is what the sources give.
func TestTheBundleIsThatOfTheSources(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("the page is not built again: ", err)
	}
	if err := run(filepath.Join("..", "..", ".."), true); err != nil {
		t.Error(err)
	}
}
