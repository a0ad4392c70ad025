package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// listing has one line for each exported name, field and method of the packages, sorted.
func listing(pkgs []*packages.Package) []string {
	var lines []string
	for _, p := range pkgs {
		l := lister{path: strings.TrimPrefix(p.PkgPath, library+"/"), pkg: p.Types}
		scope := p.Types.Scope()
		for _, name := range scope.Names() {
			if o := scope.Lookup(name); o.Exported() {
				l.object(o)
			}
		}
		lines = append(lines, l.lines...)
	}
	slices.Sort(lines)
	return lines
}

// lister lists one package.
type lister struct {
	path  string
	pkg   *types.Package
	lines []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, l.path+": "+fmt.Sprintf(format, args...))
}

// text writes a type. Packages of the library are named by their paths in it.
func (l *lister) text(t types.Type) string {
	return types.TypeString(t, l.qualify)
}

func (l *lister) qualify(p *types.Package) string {
	if p == l.pkg {
		return ""
	}
	return strings.TrimPrefix(p.Path(), library+"/")
}

func (l *lister) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		l.add("const %s %s = %s", o.Name(), l.text(o.Type()), o.Val())
	case *types.TypeName:
		l.typeName(o)
	default: // a function or a variable
		l.add("%s", types.ObjectString(o, l.qualify))
	}
}

func (l *lister) typeName(o *types.TypeName) {
	name := l.text(o.Type())
	if !o.IsAlias() {
		l.members(name, o.Type())
		return
	}
	right := o.Type()
	if alias, ok := right.(*types.Alias); ok {
		right = alias.Rhs()
	}
	l.add("type %s = %s", name, l.text(right))
	// Users know a type of an internal package by this name only.
	if named, ok := right.(*types.Named); ok && strings.HasPrefix(named.Obj().Pkg().Path(), library+"/internal/") {
		l.members(name, right)
	}
}

// members lists what a type is, with its fields and methods.
func (l *lister) members(name string, t types.Type) {
	switch u := t.Underlying().(type) {
	case *types.Struct:
		l.add("type %s struct", name)
		for f := range u.Fields() {
			if f.Exported() {
				l.add("type %s struct, %s", name, types.ObjectString(f, l.qualify)) // "field Name Type"
			}
		}
	case *types.Interface:
		l.add("type %s interface%s", name, map[bool]string{true: ", with unexported methods"}[sealed(u)])
		for m := range u.Methods() {
			if m.Exported() {
				l.add("type %s interface, method %s%s", name, m.Name(), l.signature(m))
			}
		}
		for t := range u.EmbeddedTypes() {
			if _, named := types.Unalias(t).(*types.Named); !named { // a constraint
				l.add("type %s interface, %s", name, l.text(t))
			}
		}
		return
	default:
		l.add("type %s %s", name, l.text(u))
	}
	// The methods of a pointer are those of its type and more, also of embedded fields.
	ofValue := types.NewMethodSet(t)
	for m := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := "*" + name
		if ofValue.Lookup(l.pkg, m.Obj().Name()) != nil {
			receiver = name
		}
		l.add("func (%s) %s%s", receiver, m.Obj().Name(), l.signature(m.Obj().(*types.Func)))
	}
}

func (l *lister) signature(f *types.Func) string {
	return strings.TrimPrefix(l.text(f.Type()), "func")
}

// sealed reports whether only its own package can implement an interface.
func sealed(i *types.Interface) bool {
	for m := range i.Methods() {
		if !m.Exported() {
			return true
		}
	}
	return false
}
