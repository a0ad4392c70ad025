package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The section "Reading the source" of package informer names types and methods of the
// library. Each of them exists.
func TestReadingTheSourceNamesWhatExists(t *testing.T) {
	doc, err := os.ReadFile("../informer/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(doc), "# Reading the source")
	if !ok {
		t.Fatal("informer/doc.go has no such section")
	}
	declared := declarations(t, "../informer", "../internal")
	names := regexp.MustCompile(`\b[A-Za-z]+(?:\.[A-Za-z]+)+\b`).FindAllString(section, -1)
	checked := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".md") {
			continue
		}
		checked++
		parts := strings.Split(name, ".")
		if last := strings.Join(parts[len(parts)-2:], "."); !declared[last] {
			t.Errorf("%s does not exist", name)
		}
	}
	if checked < 15 {
		t.Errorf("only %d names were checked: %q", checked, names)
	}
}

// declarations are the methods as Type.method and the types as package.Type.
func declarations(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, folder := range folders {
		err := fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), folder+"/"+path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv != nil {
						found[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if spec, ok := spec.(*ast.TypeSpec); ok {
							found[file.Name.Name+"."+spec.Name.Name] = true
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
