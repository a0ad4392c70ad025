// Package docs_test compares the documentation with the code.
package docs_test

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// dependencies.md gives a reason for each module that the go.mod of the library, the
// program or the journal requires, and for no other.
func TestDependenciesHaveReasons(t *testing.T) {
	wanted := map[string]bool{}
	for _, name := range []string{"../go.mod", "../cmd/tidings/go.mod", "../journal/go.mod"} {
		mod, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer mod.Close()
		for lines := bufio.NewScanner(mod); lines.Scan(); {
			line, ok := strings.CutPrefix(lines.Text(), "\t")
			if ok && !strings.Contains(line, "// indirect") && !strings.HasPrefix(line, "github.com/tidings-io/") {
				wanted[strings.Fields(line)[0]] = true
			}
		}
	}
	if len(wanted) < 10 {
		t.Fatalf("cannot parse go.mod: found %v", wanted)
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
			t.Errorf("dependencies.md lists %s, which no go.mod requires, or lists it twice", module)
		}
		delete(wanted, module)
		for _, c := range cells[2 : len(cells)-1] {
			if strings.TrimSpace(c) == "" {
				t.Errorf("dependencies.md has an empty cell for %s", module)
			}
		}
	}
	for module := range wanted {
		t.Errorf("dependencies.md gives no reason for %s", module)
	}
}
