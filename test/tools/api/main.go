// Command api compares what the library exports with docs/api.txt, and writes that file.
//
//	go -C test/tools run ./api                   # compare: fails if something changed
//	go -C test/tools run ./api -write            # write docs/api.txt
//	go -C test/tools run ./api -since v0.1.0     # what breaks users of an older commit, by apidiff
//
// docs/upgrading.md says what may change.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

const library = "github.com/tidings-io/tidings"

// golden has the listing, relative to the root of the repository.
const golden = "docs/api.txt"

func main() {
	root := flag.String("root", "../..", "`folder` of the repository")
	write := flag.Bool("write", false, "write "+golden)
	since := flag.String("since", "", "print the changes since this `commit`, and fail if one is incompatible")
	flag.Parse()
	if err := run(*root, *write, *since); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(root string, write bool, since string) error {
	pkgs, err := load(root)
	if err != nil {
		return err
	}
	if since != "" {
		return compare(root, since, pkgs)
	}
	name := filepath.Join(root, filepath.FromSlash(golden))
	now := listing(pkgs)
	if write {
		return os.WriteFile(name, []byte(strings.Join(now, "\n")+"\n"), 0o644)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return differ(strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), now)
}

// load type-checks the packages of the library that others can import.
func load(root string) ([]*packages.Package, error) {
	pkgs, err := packages.Load(&packages.Config{
		Dir: root, Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps,
		Env: append(os.Environ(), "GOWORK=off"),
	}, "./...")
	if err != nil {
		return nil, err
	}
	var found []*packages.Package
	for _, p := range pkgs {
		if p.Name == "main" || strings.Contains(p.PkgPath+"/", "/internal/") || strings.HasPrefix(p.PkgPath, library+"/docs") {
			continue
		}
		for _, err := range p.Errors {
			return nil, err
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no packages", root)
	}
	return found, nil
}

// differ returns an error that names the lines of two sorted listings that differ, and
// what to do about them.
func differ(before, now []string) error {
	var removed, added []string
	for _, line := range before {
		if _, ok := slices.BinarySearch(now, line); !ok {
			removed = append(removed, "- "+line)
		}
	}
	for _, line := range now {
		if _, ok := slices.BinarySearch(before, line); !ok {
			added = append(added, "+ "+line)
		}
	}
	if len(removed) == 0 && len(added) == 0 {
		return nil
	}
	what := "The library exports more than " + golden + " lists. Check that it should be promised to users,\nand add it to CHANGELOG.md under Added."
	if len(removed) > 0 {
		what = "What " + golden + " lists was changed or removed, which breaks users. Keep it, with a \"Deprecated:\"\ncomment if it has a successor, or say in CHANGELOG.md under Changed or Removed what users do\ninstead. docs/upgrading.md says in which versions that is allowed."
	}
	return fmt.Errorf("\n%s\n\n%s\nThen: go -C test/tools run ./api -write", strings.Join(append(removed, added...), "\n"), what)
}

// compare prints the changes since a commit.
func compare(root, since string, now []*packages.Package) error {
	dir, err := os.MkdirTemp("", "api-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive, tree := filepath.Join(dir, "before.tar"), filepath.Join(dir, "before")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	for _, cmd := range []*exec.Cmd{exec.Command("git", "-C", root, "archive", "-o", archive, since), exec.Command("tar", "-C", tree, "-xf", archive)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
		}
	}
	before, err := load(tree)
	if err != nil {
		return fmt.Errorf("the library of %s: %w", since, err)
	}
	broken := false
	for _, old := range before {
		i := slices.IndexFunc(now, func(p *packages.Package) bool { return p.PkgPath == old.PkgPath })
		if i < 0 {
			fmt.Printf("%s: removed\n", old.PkgPath)
			broken = true
			continue
		}
		for _, c := range apidiff.Changes(old.Types, now[i].Types).Changes {
			word := "compatible"
			if !c.Compatible {
				word, broken = "INCOMPATIBLE", true
			}
			fmt.Printf("%s: %s: %s\n", old.PkgPath, word, c.Message)
		}
	}
	if broken {
		return fmt.Errorf("users of %s must change their code: docs/upgrading.md says in which versions that is allowed", since)
	}
	return nil
}
