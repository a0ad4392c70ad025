package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const repository = "github.com/tidings-io/tidings"

// The table of packages in architecture.md names each package's imports within this
// repository, no more and no fewer, and a package imports only packages above it.
func TestImportTable(t *testing.T) {
	rows := importTable(t)
	used := imports(t, rows)
	for i, row := range rows {
		got := used[row.folder]
		if got == nil {
			t.Errorf("architecture.md lists %s, which has no Go files", row.folder)
			continue
		}
		for _, folder := range row.imports {
			if !got[folder] {
				t.Errorf("architecture.md: %s does not import %s", row.folder, folder)
			}
			delete(got, folder)
			if slices.IndexFunc(rows, func(r tableRow) bool { return r.folder == folder }) >= i {
				t.Errorf("%s imports %s, which is not above it in architecture.md", row.folder, folder)
			}
		}
		for _, folder := range slices.Sorted(maps.Keys(got)) {
			t.Errorf("architecture.md does not say that %s imports %s", row.folder, folder)
		}
	}
}

// tableRow is one line of the table: a folder and the folders it imports.
type tableRow struct {
	folder  string
	imports []string
}

// importTable parses the table of packages in architecture.md.
func importTable(t *testing.T) []tableRow {
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| folder | contents | imports |\n|---|---|---|\n")
	if !ok {
		t.Fatal("architecture.md has no table of packages")
	}
	var rows []tableRow
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			break
		}
		row := tableRow{folder: strings.Trim(cells[1], " `")}
		if names := strings.TrimSpace(cells[3]); names != "–" {
			row.imports = strings.Split(names, ", ")
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		for i, name := range row.imports {
			row.imports[i] = resolve(t, rows, name)
		}
	}
	return rows
}

// resolve returns the folder of the table that name is, or is the end of.
func resolve(t *testing.T, rows []tableRow, name string) string {
	var found []string
	for _, row := range rows {
		if row.folder == name {
			return name
		}
		if strings.HasSuffix(row.folder, "/"+name) {
			found = append(found, row.folder)
		}
	}
	if len(found) != 1 {
		t.Fatalf("architecture.md: the import %q is the end of %d folders, not of one: %v", name, len(found), found)
	}
	return found[0]
}

// imports returns, by folder of the table, the folders that the non-test files in and
// below it import. It fails for packages without a line in the table.
func imports(t *testing.T, rows []tableRow) map[string]map[string]bool {
	// inTable returns the folder of the table that dir belongs to.
	inTable := func(dir string) string {
		for ; dir != "." && dir != "/"; dir = path.Dir(dir) {
			if slices.ContainsFunc(rows, func(r tableRow) bool { return r.folder == dir }) {
				return dir
			}
		}
		return ""
	}
	used := map[string]map[string]bool{}
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && name != "." &&
			(base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		folder := inTable(path.Dir(name))
		if folder == "" {
			t.Errorf("architecture.md has no line for %s", path.Dir(name))
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		if used[folder] == nil {
			used[folder] = map[string]bool{}
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			// A rig's module path has the program's before it, so that it may import
			// the program's internal packages.
			imported = strings.Replace(imported, repository+"/cmd/tidings/test/", repository+"/test/", 1)
			dir, ok := strings.CutPrefix(imported, repository+"/")
			if !ok {
				continue
			}
			target := inTable(dir)
			if target == "" {
				t.Errorf("%s imports %s, which has no line in architecture.md", name, imported)
			} else if target != folder {
				used[folder][target] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}
