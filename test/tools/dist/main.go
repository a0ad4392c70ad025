// Command dist builds the files of a release from a commit: the program for each
// platform, in archives, with bills of materials, an image, the manifest of the kubectl
// plugin and checksums. docs/releasing.md says when to run it.
//
//	go -C test/tools run ./dist -out DIR                          # HEAD, all platforms
//	go -C test/tools run ./dist -out DIR -platforms linux/amd64   # one of them
//	go -C test/tools run ./dist -out DIR -twice                   # and compare with a second build
//
// Two builds of one commit by the same version of Go have the same bytes, wherever they
// are built.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	library = "github.com/tidings-io/tidings"
	program = library + "/cmd/tidings"
)

// platforms are those of a release.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

func (p platform) binary() string {
	if p.os == "windows" {
		return "tidings.exe"
	}
	return "tidings"
}

func main() {
	root := flag.String("root", "../..", "`folder` of the repository")
	commit := flag.String("commit", "HEAD", "`commit` to build")
	out := flag.String("out", "", "empty `folder` to write to")
	only := flag.String("platforms", "", "`platforms` to build, with commas between them (default: all)")
	twice := flag.Bool("twice", false, "build again in another folder, with an empty build cache, and compare")
	flag.Parse()
	if err := run(*root, *commit, *out, *only, *twice); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(root, commit, out, only string, twice bool) error {
	wanted, err := choose(only)
	if err != nil {
		return err
	}
	if out == "" {
		return errors.New("-out is missing")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(out); err != nil || len(there) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty", out))
	}
	sums, err := dist(root, commit, out, wanted, "")
	if err != nil {
		return err
	}
	fmt.Printf("%s", sums)
	if !twice {
		return nil
	}
	temp, err := os.MkdirTemp("", "dist-again-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	again := filepath.Join(temp, "out")
	if err := os.Mkdir(again, 0o755); err != nil {
		return err
	}
	repeated, err := dist(root, commit, again, wanted, filepath.Join(temp, "cache"))
	if err != nil {
		return err
	}
	if !bytes.Equal(sums, repeated) {
		return fmt.Errorf("the second build has other checksums:\n%s", repeated)
	}
	fmt.Println("the second build has the same checksums")
	return nil
}

// choose returns the platforms of a list with commas.
func choose(only string) ([]platform, error) {
	if only == "" {
		return platforms, nil
	}
	var wanted []platform
	for name := range strings.SplitSeq(only, ",") {
		found := false
		for _, p := range platforms {
			if p.String() == name {
				wanted, found = append(wanted, p), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-platforms %s: there is no release for it, only for %v", name, platforms)
		}
	}
	return wanted, nil
}

// dist writes the files of a release to a folder, and returns their checksums. cache is
// the build cache, "" for the usual one.
func dist(root, commit, out string, wanted []platform, cache string) (sums []byte, err error) {
	temp, err := os.MkdirTemp("", "dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	r, err := checkout(root, commit, temp)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{} // by name
	archives := map[platform]archive{}
	binaries := map[platform][]byte{}
	for _, p := range wanted {
		if binaries[p], err = r.build(p, cache); err != nil {
			return nil, err
		}
		if archives[p], err = r.archive(p, binaries[p]); err != nil {
			return nil, err
		}
		files[archives[p].name] = archives[p].data
		if files[r.file(p, "cdx.json")], err = r.bill(p, binaries[p]); err != nil {
			return nil, fmt.Errorf("bill of materials for %s: %w", p, err)
		}
	}
	if files[r.name("image.tar")], err = r.image(binaries); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if files["tidings.yaml"], err = r.krew(archives); err != nil {
		return nil, fmt.Errorf("manifest of the kubectl plugin: %w", err)
	}
	sums = checksums(files)
	files[r.name("checksums.txt")] = sums
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
			return nil, err
		}
	}
	return sums, nil
}
