// Command weight prints what each module adds to a program, for the table in
// docs/dependencies.md: the number of linked packages and the bytes of their
// functions and data. Run it in the root of the repository:
//
//	go -C test/tools build -o /tmp/weight ./weight && /tmp/weight ./cmd/tidings
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is a module in the output of go list.
type module struct {
	Path     string
	Indirect bool
	Main     bool
}

type weight struct {
	module
	packages int
	bytes    int64
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: weight PACKAGE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "weight:", err)
		os.Exit(1)
	}
}

func run(program string) error {
	dir, err := os.MkdirTemp("", "weight-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "program")
	if _, err := output("go", "build", "-o", binary, program); err != nil {
		return err
	}
	packages, err := packagesOf(program)
	if err != nil {
		return err
	}
	weights := map[string]*weight{}
	for _, m := range packages {
		if weights[m.Path] == nil {
			weights[m.Path] = &weight{module: m}
		}
		weights[m.Path].packages++
	}
	symbols, err := output("go", "tool", "nm", "-size", binary)
	if err != nil {
		return err
	}
	var all int64
	for lines := bufio.NewScanner(bytes.NewReader(symbols)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || strings.EqualFold(fields[2], "U") || strings.EqualFold(fields[2], "b") {
			continue // not in the file
		}
		size, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		all += size
		if m, ok := packages[packageOf(strings.Join(fields[3:], " "), packages)]; ok {
			weights[m.Path].bytes += size
		}
	}
	sorted := make([]*weight, 0, len(weights))
	for _, w := range weights {
		sorted = append(sorted, w)
	}
	slices.SortFunc(sorted, func(a, b *weight) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.Path, b.Path)) })
	fmt.Printf("%10s %9s  module (%d kB of symbols in all)\n", "kB", "packages", all/1000)
	for _, w := range sorted {
		name := w.Path
		if w.Indirect {
			name += " (indirect)"
		}
		fmt.Printf("%10d %9d  %s\n", w.bytes/1000, w.packages, name)
	}
	return nil
}

// packagesOf returns the packages that are linked into a program, with their
// modules. The module of the standard library is "std".
func packagesOf(program string) (map[string]module, error) {
	list, err := output("go", "list", "-deps", "-json=ImportPath,Module,Standard", program)
	if err != nil {
		return nil, err
	}
	out := map[string]module{}
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			ImportPath string
			Module     *module
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if p.Module == nil {
			p.Module = &module{Path: "std"}
		}
		out[p.ImportPath] = *p.Module
	}
}

// packageOf returns the package of a symbol: the longest package path that it
// begins with. Symbols of types and generated ones have a prefix.
func packageOf(symbol string, packages map[string]module) string {
	for _, prefix := range []string{"go:itab.", "type:.eq.", "type:.hash.", "type:", "*"} {
		symbol = strings.TrimPrefix(symbol, prefix)
	}
	symbol = strings.ReplaceAll(strings.TrimLeft(symbol, "*[]"), "%2e", ".")
	slash := strings.LastIndexByte(strings.SplitN(symbol, "[", 2)[0], '/') + 1
	for i := slash; i < len(symbol); i++ {
		if symbol[i] == '.' {
			if _, ok := packages[symbol[:i]]; ok {
				return symbol[:i]
			}
		}
	}
	return ""
}

func output(name string, args ...string) ([]byte, error) {
	var errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return out, nil
}
