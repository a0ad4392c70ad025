package relations

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a file of edges.
const (
	maxEdgeFile   = 1 << 20
	maxEdges      = 100
	maxExpression = 10_000 // bytes
	maxProblems   = 10     // that are reported of one file
)

// Edges are relations of one's own, from a file; see [ReadEdges].
type Edges struct {
	edges []edge
}

// edge is one of them: objects of from lead to objects of to.
type edge struct {
	from, name, to string // from and to are resources, by any of their names
	optional       bool   // an object that is named need not exist
	expression     string
	compiled       *expression
}

// Resources returns the names of the resources that the edges are about, as the file has
// them.
func (e *Edges) Resources() (names []string) {
	for _, one := range e.edges {
		names = append(names, one.from, one.to)
	}
	return names
}

// ReadEdges reads edges from a file in YAML. The error says what is wrong at which line
// and column.
func ReadEdges(name string) (*Edges, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEdgeFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ParseEdges(name, text)
}

// ParseEdges is ReadEdges for the text of a file.
func ParseEdges(name string, text []byte) (*Edges, error) {
	if len(text) > maxEdgeFile {
		return nil, fmt.Errorf("%s: it has more than %d bytes", name, maxEdgeFile)
	}
	p := &edgeParser{name: name, lines: strings.Split(string(text), "\n"), out: &Edges{}}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf(`%s: it is empty; it must have a list "edges"`, name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: it must have one YAML document", name)
	}
	p.file(document.Content[0])
	if len(p.problems) > maxProblems {
		p.problems = append(p.problems[:maxProblems], fmt.Errorf("%s: and %d more", name, len(p.problems)-maxProblems))
	}
	return p.out, errors.Join(p.problems...)
}

// edgeParser collects the edges of a file, and all that is wrong with it.
type edgeParser struct {
	name     string
	lines    []string
	out      *Edges
	problems []error
}

func (p *edgeParser) problem(line, column int, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s:%d:%d: %s", p.name, line, column, fmt.Sprintf(format, args...)))
}

func (p *edgeParser) file(n *yaml.Node) {
	list := p.fields(n, "the file", "edges")["edges"]
	switch {
	case list == nil:
		if len(p.problems) == 0 {
			p.problem(n.Line, n.Column, `the list "edges" is missing`)
		}
	case list.Kind != yaml.SequenceNode:
		p.problem(list.Line, list.Column, `"edges" must be a list`)
	case len(list.Content) > maxEdges:
		p.problem(list.Line, list.Column, "%d edges; at most %d are allowed", len(list.Content), maxEdges)
	default:
		for i, entry := range list.Content {
			p.edge(i+1, entry)
		}
	}
}

// fields returns the values of a mapping that may have some keys.
func (p *edgeParser) fields(n *yaml.Node, what string, allowed ...string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		p.problem(n.Line, n.Column, "%s must be a mapping with %s", what, strings.Join(allowed, ", "))
		return nil
	}
	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		known := false
		for _, a := range allowed {
			known = known || key.Kind == yaml.ScalarNode && key.Value == a
		}
		switch {
		case !known:
			p.problem(key.Line, key.Column, "%s has an unknown field %q; known are %s", what, key.Value, strings.Join(allowed, ", "))
		case fields[key.Value] != nil:
			p.problem(key.Line, key.Column, "%s has %q twice", what, key.Value)
		default:
			fields[key.Value] = value
		}
	}
	return fields
}

func (p *edgeParser) edge(number int, n *yaml.Node) {
	what := fmt.Sprintf("edge %d", number)
	fields := p.fields(n, what, "from", "to", "name", "expression", "optional")
	if fields == nil {
		return
	}
	before := len(p.problems)
	text := func(key string, longest int) string {
		v := fields[key]
		switch {
		case v == nil:
			p.problem(n.Line, n.Column, "%s has no %s", what, key)
		case v.Kind != yaml.ScalarNode || v.Tag != "!!str" || strings.TrimSpace(v.Value) == "":
			p.problem(v.Line, v.Column, "%s of %s must be text", key, what)
		case len(v.Value) > longest || !utf8.ValidString(v.Value):
			p.problem(v.Line, v.Column, "%s of %s is longer than %d bytes", key, what, longest)
		default:
			return v.Value
		}
		return ""
	}
	e := edge{from: text("from", 300), to: text("to", 300), name: text("name", 60), expression: text("expression", maxExpression)}
	if v := fields["optional"]; v != nil {
		if e.optional = v.Value == "true"; v.Kind != yaml.ScalarNode || v.Tag != "!!bool" {
			p.problem(v.Line, v.Column, "optional of %s must be true or false", what)
		}
	}
	if len(p.problems) > before {
		return
	}
	var wrong []compileError
	if e.compiled, wrong = compile(e.expression); wrong != nil {
		for _, w := range wrong {
			line, column := p.place(fields["expression"], w.line, w.column)
			p.problem(line, column, "%s (%s): %s", what, e.name, w.message)
		}
		return
	}
	p.out.edges = append(p.out.edges, e)
}

// place returns where a place of an expression is in the file. For styles of YAML that
// change the lines of a text, it is where the expression begins.
func (p *edgeParser) place(n *yaml.Node, line, column int) (inFile, inLine int) {
	switch {
	case n.Style&yaml.LiteralStyle != 0 && n.Line+line <= len(p.lines):
		first := p.lines[min(n.Line, len(p.lines)-1)] // the one below that of the |
		indent := len(first) - len(strings.TrimLeft(first, " "))
		return n.Line + line, indent + column
	case n.Style&yaml.FoldedStyle != 0 || line > 1:
		return n.Line, n.Column
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return n.Line, n.Column + column
	}
	return n.Line, n.Column + column - 1
}
