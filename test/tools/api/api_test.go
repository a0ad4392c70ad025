package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// list returns the listing of a package of the library with that source.
func list(t *testing.T, source string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", "package p\n"+source, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check(library+"/p", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return listing([]*packages.Package{{PkgPath: library + "/p", Types: pkg}})
}

func TestListing(t *testing.T) {
	got := list(t, `
		const C, c = 1, 2
		var V error
		func F[T any](a T, _ ...string) (n int) { return 0 }
		type base struct{}
		func (*base) Promoted() {}
		type S struct { base; X, y int }
		func (S) M(s S) {}
		func (*S) m() {}
		type I interface { Do(S) error }
		type J interface { I; sealed() }
		type K interface { ~int | ~string }
		type A = S
		type N int
		type unexported struct { X int }`)
	want := []string{
		"p: const C untyped int = 1",
		"p: func (*S) Promoted()",
		"p: func (S) M(s S)",
		"p: func F[T any](a T, _ ...string) (n int)",
		"p: type A = S",
		"p: type I interface",
		"p: type I interface, method Do(S) error",
		"p: type J interface, method Do(S) error",
		"p: type J interface, with unexported methods",
		"p: type K interface",
		"p: type K interface, ~int | ~string",
		"p: type N int",
		"p: type S struct",
		"p: type S struct, field X int",
		"p: var V error",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A change is reported with what to do about it.
func TestDiffer(t *testing.T) {
	one := list(t, "func F() {}\nfunc G() {}")
	if err := differ(one, one); err != nil {
		t.Error(err)
	}
	for what, c := range map[string]struct{ source, says, advice string }{
		"added":   {"func F() {}\nfunc G() {}\nfunc H() {}", "+ p: func H()\n", "under Added"},
		"removed": {"func F() {}", "- p: func G()\n", "breaks users"},
		"changed": {"func F() {}\nfunc G(int) {}", "- p: func G()\n+ p: func G(int)\n", "breaks users"},
	} {
		if err := differ(one, list(t, c.source)); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.advice) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
