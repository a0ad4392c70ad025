// Command page builds the page of `tidings serve` from its sources, in
// cmd/tidings/internal/page:
//
//	go -C test/tools run ./page          writes app.js and app.css
//	go -C test/tools run ./page --check  fails if they are not what the sources give
//
// It checks the types, too. It needs npm, which installs the packages of package-lock.json
// into a temporary folder. Nobody else needs npm or Node: what it writes is in the
// repository.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	check := flag.Bool("check", false, "compare with what is in the repository, and write nothing")
	flag.Parse()
	if err := run(filepath.Join("..", ".."), *check); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// run builds the page of the repository at root.
func run(root string, check bool) error {
	folder := filepath.Join(root, "cmd", "tidings", "internal", "page")
	work, err := os.MkdirTemp("", "page")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := install(filepath.Join(root, "test", "tools", "page"), work); err != nil {
		return err
	}
	// The compiler looks for packages above the sources.
	if err := os.CopyFS(filepath.Join(work, "src"), os.DirFS(filepath.Join(folder, "src"))); err != nil {
		return err
	}
	tsc := exec.Command(filepath.Join(work, "node_modules", ".bin", "tsc"), "-p", filepath.Join(work, "src"))
	if out, err := tsc.CombinedOutput(); err != nil {
		return fmt.Errorf("check the types: %w\n%s", err, out)
	}
	files, err := bundle(work)
	if err != nil {
		return err
	}
	for name, content := range files {
		at := filepath.Join(folder, "dist", name)
		if !check {
			if err := os.WriteFile(at, content, 0o644); err != nil {
				return err
			}
			continue
		}
		if have, err := os.ReadFile(at); err != nil || !bytes.Equal(have, content) {
			return fmt.Errorf("%s is not what the sources give: run go -C test/tools run ./page", at)
		}
	}
	return nil
}

// install installs the packages of the lock file into a folder.
func install(from, work string) error {
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, name), content, 0o644); err != nil {
			return err
		}
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = work
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
}

// bundle makes the files of the page from work/src and work/node_modules.
func bundle(work string) (map[string][]byte, error) {
	work, err := filepath.EvalSymlinks(work)
	if err != nil {
		return nil, err
	}
	result := api.Build(api.BuildOptions{
		EntryPointsAdvanced: []api.EntryPoint{
			{InputPath: filepath.Join(work, "src", "main.tsx"), OutputPath: "app"},
			{InputPath: filepath.Join(work, "src", "app.css"), OutputPath: "app"},
		},
		AbsWorkingDir: work, Outdir: filepath.Join(work, "dist"),
		Bundle: true, Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsNone,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact",
	})
	if len(result.Errors) > 0 {
		return nil, fmt.Errorf("bundle: %s", api.FormatMessages(result.Errors, api.FormatMessagesOptions{}))
	}
	out := map[string][]byte{}
	for _, f := range result.OutputFiles {
		out[filepath.Base(f.Path)] = f.Contents
	}
	return out, nil
}
