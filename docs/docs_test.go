// Package docs_test holds pages to what they are about.
package docs_test

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// Each module that go.mod asks for has its reason in dependencies.md, and nothing
// else has.
func TestDependenciesHaveReasons(t *testing.T) {
	mod, err := os.Open("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	defer mod.Close()
	wanted := map[string]bool{}
	for lines := bufio.NewScanner(mod); lines.Scan(); {
		line, ok := strings.CutPrefix(lines.Text(), "\t")
		if ok && !strings.Contains(line, "// indirect") {
			wanted[strings.Fields(line)[0]] = true
		}
	}
	if len(wanted) < 10 {
		t.Fatalf("go.mod cannot be understood: %v", wanted)
	}
	page, err := os.ReadFile("dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		module := strings.Trim(cells[1], " `")
		if !wanted[module] {
			t.Errorf("dependencies.md has %s, which go.mod does not ask for, or twice", module)
		}
		delete(wanted, module)
		for _, c := range cells[2 : len(cells)-1] {
			if strings.TrimSpace(c) == "" {
				t.Errorf("dependencies.md does not say all of %s", module)
			}
		}
	}
	for module := range wanted {
		t.Errorf("dependencies.md does not say why %s is needed", module)
	}
}
