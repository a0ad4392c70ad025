package soak

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is a defect to put into the server, to see that a run finds it.
type Mutant struct {
	// Name on the command line, and What it does.
	Name, What string
	// Fault is what it takes to show, if it takes one: then that comes first.
	Fault string

	file, old, new string
}

// Mutants are those there are.
var Mutants = []Mutant{
	{
		Name: "drop", What: "some updates are stored, and nobody is told",
		file: "internal/indexer/apply.go",
		old:  "\t\tsame := ix.same != nil && ix.same(old, o)\n",
		new:  "\t\tif is.number%199 == 0 {\n\t\t\tix.mark(s, &version[T]{object: o, number: is.number})\n\t\t\treturn\n\t\t}\n\t\tsame := ix.same != nil && ix.same(old, o)\n",
	},
	{
		Name: "stale", What: "some updates are not stored",
		file: "internal/indexer/apply.go",
		old:  "\tix.advance(is.namespace, is.number)\n\tix.change(s, o, is)\n",
		new:  "\tix.advance(is.namespace, is.number)\n\tif is.number%199 != 0 {\n\t\tix.change(s, o, is)\n\t}\n",
	},
	{
		Name: "keep", What: "some objects that were deleted are kept",
		file: "internal/indexer/apply.go",
		old:  "\theld := s.newest.Load()\n\tif stale(s, held, is) {\n",
		new:  "\theld := s.newest.Load()\n\tif stale(s, held, is) || is.number%29 == 0 {\n",
	},
	{
		Name: "sweep", What: "what was deleted unseen is kept", Fault: "API server has forgotten everything",
		file: "internal/indexer/apply.go",
		old:  "\tchanged := ix.events\n\tix.events = nil\n\tix.sweep(list.Namespace)\n",
		new:  "\tchanged := ix.events\n\tix.events = nil\n",
	},
	{
		Name: "twice", What: "some updates are told twice",
		file: "internal/indexer/apply.go",
		old:  "\tix.account(o, 1)\n\tix.account(old, -1)\n\tix.reindex(s, old, o, true, true)\n",
		new:  "\tif is.number%199 == 0 {\n\t\tix.events = append(ix.events, ix.events[len(ix.events)-1])\n\t}\n\tix.account(o, 1)\n\tix.account(old, -1)\n\tix.reindex(s, old, o, true, true)\n",
	},
	{
		Name: "gap", What: "who resumes from before what is known is told what happens from there on",
		file: "internal/changelog/changelog.go",
		old:  "\tif p.ResourceVersion == 0 || resourceVersion < p.ResourceVersion {\n\t\treturn nil, false\n",
		new:  "\tif p.ResourceVersion == 0 || resourceVersion < p.ResourceVersion {\n\t\treturn p, p.ResourceVersion != 0\n",
	},
}

// MutantNames are the names of all, to choose from.
func MutantNames() string {
	var names []string
	for _, m := range Mutants {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// FindMutant finds one by its name.
func FindMutant(name string) (*Mutant, error) {
	for i := range Mutants {
		if Mutants[i].Name == name {
			return &Mutants[i], nil
		}
	}
	return nil, fmt.Errorf("there is no mutant %q; there are: %s", name, MutantNames())
}

// overlay writes what go build -overlay wants, to have the mutant instead of the
// source that is in root.
func (m *Mutant) overlay(root, dir string) (string, error) {
	path := filepath.Join(root, filepath.FromSlash(m.file))
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: what it replaces is %d times in %s, want once: the source has changed, and the mutant must, too", m.Name, n, m.file)
	}
	changed := filepath.Join(dir, m.Name+".go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, m.Name+".json")
	return out, os.WriteFile(out, overlay, 0o600)
}
