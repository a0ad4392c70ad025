package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// edit turns a test file of client-go's into one of package clientgo. It
// removes the declarations that are left out and renames the reflector. Line
// numbers do not change, because tests look for them in logs. edit adds the
// declarations of leftOut that it finds to seen.
func edit(name string, source []byte, seen map[string]bool) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	out := bytes.Clone(source)
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	blank := func(from, to token.Pos) {
		for i := offset(from); i < offset(to); i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	used := map[string]bool{}
	var renames []*ast.Ident
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.IMPORT {
			continue
		}
		if declared := nameOf(decl); left(declared) {
			seen[declared] = true
			from := decl.Pos()
			if d, ok := decl.(*ast.FuncDecl); ok && d.Doc != nil {
				from = d.Doc.Pos()
			}
			blank(from, decl.End())
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					used[x.Name] = true
				}
			case *ast.Ident:
				if renamed[n.Name] != "" && strings.HasPrefix(name, "reflector") {
					renames = append(renames, n)
				}
			}
			return true
		})
	}
	for _, spec := range file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		local := path.Base(p)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "v2" {
			local = path.Base(path.Dir(p))
		}
		if !used[local] && local != "." && local != "_" {
			blank(spec.Pos(), spec.End())
		}
	}
	// Back to front, so that the offsets stay valid.
	for i := len(renames) - 1; i >= 0; i-- {
		at := offset(renames[i].Pos())
		out = append(out[:at], append([]byte(renamed[renames[i].Name]), out[at+len(renames[i].Name):]...)...)
	}
	for old, new := range replaced[name] {
		if !bytes.Contains(out, []byte(old)) {
			return nil, fmt.Errorf("leftout.go replaces %q, which %s no longer contains", old, name)
		}
		out = bytes.ReplaceAll(out, []byte(old), []byte(new))
	}
	at := offset(file.Name.Pos())
	return append(out[:at], append([]byte("clientgo"), out[at+len(file.Name.Name):]...)...), nil
}

func left(name string) bool {
	_, ok := leftOut[name]
	return ok
}

// nameOf returns the name of a declaration, or type.method.
func nameOf(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		t := d.Recv.List[0].Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		return fmt.Sprintf("%s.%s", t, d.Name.Name)
	case *ast.GenDecl:
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return s.Name.Name
		case *ast.ValueSpec:
			return s.Names[0].Name
		}
	}
	return ""
}
