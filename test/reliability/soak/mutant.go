package soak

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	gotoken "go/token"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is a defect to build into the server, to check that a run finds it.
type Mutant struct {
	// Name on the command line, and What the defect is.
	Name, What string
	// Fault is the fault that shows the defect, if it takes one. It is injected
	// first.
	Fault string

	// In file, function has one statement or expression that prints as node. It is
	// replaced by with, in which $0 stands for the node's own text.
	file, function, node, with string
}

// Mutants are all mutants.
var Mutants = []Mutant{
	{
		Name: "drop", What: "some updates are stored but not delivered",
		file: "internal/indexer/apply.go", function: "change",
		node: "same := ix.same != nil && ix.same(old, o)",
		with: `if m.resourceVersion%199 == 0 {
			ix.supersede(s, &version[T]{object: o})
			return
		}
		$0`,
	},
	{
		Name: "stale", What: "some updates are not stored",
		file: "internal/indexer/apply.go", function: "set",
		node: "ix.change(s, o, m)",
		with: "if m.resourceVersion%199 != 0 { $0 }",
	},
	{
		Name: "keep", What: "some deleted objects are kept",
		file: "internal/indexer/apply.go", function: "remove",
		node: "stale(s, m)",
		with: "$0 || m.resourceVersion%29 == 0",
	},
	{
		Name: "sweep", What: "objects whose deletion was not seen are kept", Fault: "API server has forgotten everything",
		file: "internal/indexer/apply.go", function: "replace",
		node: "ix.dropUnlisted(list.Namespace)",
	},
	{
		Name: "twice", What: "some updates are delivered twice",
		file: "internal/indexer/apply.go", function: "change",
		node: "ix.addBytes(o, 1)",
		with: `if m.resourceVersion%199 == 0 {
			ix.events = append(ix.events, ix.events[len(ix.events)-1])
		}
		$0`,
	},
	{
		Name: "gap", What: "a watch from before the start of the log begins at its start",
		file: "internal/changelog/changelog.go", function: "Since",
		node: "return nil, false",
		with: "return p, p.ResourceVersion != 0",
	},
	{
		Name: "continuity", What: "replicas do not check that no message of the log is missing", Fault: "acknowledged messages removed",
		file: "cmd/tidings/internal/fleet/logreader.go", function: "handle",
		node: `m.Epoch == l.at.Epoch && m.Number == l.at.Number+1`,
		with: "true",
	},
	{
		Name: "epoch", What: "a publisher goes on with the epoch of the one before", Fault: "the publisher killed",
		file: "cmd/tidings/internal/fleet/term.go", function: "term",
		node: "t.ctx, t.cancel = context.WithCancelCause(ctx)",
		with: `$0
		if last, err := log.GetMsg(ctx, log.CachedInfo().State.LastSeq); err == nil {
			if m, err := parseMessage(c.name, last.Subject, last.Header, last.Data, last.Sequence); err == nil {
				t.epoch, t.number = m.Epoch, m.Number
			}
		}`,
	},
	{
		Name: "fence", What: "a publisher that was replaced can add to the log", Fault: "the publisher paused past its lease",
		file: "cmd/tidings/internal/fleet/streamwriter.go", function: "send",
		node: "opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequence(w.last)}",
		with: "opts := []jetstream.PublishOpt{}",
	},
}

// MutantNames returns the names of all mutants, separated by commas.
func MutantNames() string {
	var names []string
	for _, m := range Mutants {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// FindMutant returns the mutant with the given name.
func FindMutant(name string) (*Mutant, error) {
	for i := range Mutants {
		if Mutants[i].Name == name {
			return &Mutants[i], nil
		}
	}
	return nil, fmt.Errorf("there is no mutant %q; there are: %s", name, MutantNames())
}

// overlay writes a file for go build -overlay to dir, which replaces a source file
// in root by the mutant's, and returns its path.
func (m *Mutant) overlay(root, dir string) (string, error) {
	path := filepath.Join(root, filepath.FromSlash(m.file))
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mutated, err := m.apply(string(source))
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, m.Name+".go")
	if err := os.WriteFile(changed, []byte(mutated), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, m.Name+".json")
	return out, os.WriteFile(out, overlay, 0o600)
}

// apply returns source with the defect in it.
func (m *Mutant) apply(source string) (string, error) {
	files := gotoken.NewFileSet()
	parsed, err := parser.ParseFile(files, m.file, source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var found []ast.Node
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == m.function {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n.(type) {
				case ast.Stmt, ast.Expr:
					if printed(files, n) == m.node {
						found = append(found, n)
						return false // not a statement and its only expression, too
					}
				}
				return true
			})
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("mutant %s: %q occurs %d times in function %s of %s, want once: adapt the mutant to the source", m.Name, m.node, len(found), m.function, m.file)
	}
	begin, end := files.Position(found[0].Pos()).Offset, files.Position(found[0].End()).Offset
	return source[:begin] + strings.ReplaceAll(m.with, "$0", source[begin:end]) + source[end:], nil
}

// printed returns a node as gofmt prints it.
func printed(files *gotoken.FileSet, n ast.Node) string {
	var out strings.Builder
	if err := printer.Fprint(&out, files, n); err != nil {
		return ""
	}
	return out.String()
}
