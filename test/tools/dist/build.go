package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// release is a commit that is built.
type release struct {
	version string // with "-snapshot.g" and the commit if it is not tagged
	commit  string
	date    time.Time // of the commit
	source  string    // a folder with the files of the commit
}

// checkout writes the files of a commit to a folder below temp.
func checkout(root, commit, temp string) (*release, error) {
	r := &release{source: filepath.Join(temp, "source")}
	said, err := command(root, nil, "git", "show", "-s", "--format=%H %ct", commit+"^{commit}")
	if err != nil {
		return nil, err
	}
	var seconds int64
	if _, err := fmt.Sscan(said, &r.commit, &seconds); err != nil {
		return nil, fmt.Errorf("git says of %s: %s: %w", commit, said, err)
	}
	r.date = time.Unix(seconds, 0).UTC()
	packed := filepath.Join(temp, "source.tar")
	if err := os.Mkdir(r.source, 0o755); err != nil {
		return nil, err
	}
	if _, err := command(root, nil, "git", "archive", "-o", packed, r.commit); err != nil {
		return nil, err
	}
	if _, err := command(r.source, nil, "tar", "-xf", packed); err != nil {
		return nil, err
	}

	name := filepath.Join(r.source, "cmd", "tidings", "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	mod, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(mod.Require, func(q *modfile.Require) bool { return q.Mod.Path == library })
	if i < 0 {
		return nil, fmt.Errorf("%s does not require %s", name, library)
	}
	r.version = mod.Require[i].Mod.Version
	tags, err := command(root, nil, "git", "tag", "--points-at", r.commit)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(strings.Fields(tags), r.version) {
		r.version += "-snapshot.g" + r.commit[:12]
	}
	return r, nil
}

// name returns the name of a file of the release.
func (r *release) name(rest string) string { return "tidings_" + r.version + "_" + rest }

// file returns the name of a file of the release for one platform.
func (r *release) file(p platform, extension string) string {
	return r.name(p.os + "_" + p.arch + "." + extension)
}

// build builds the program for a platform. Nothing of this machine but its version of Go
// gets into it.
func (r *release) build(p platform, cache string) ([]byte, error) {
	env := append(os.Environ(),
		"GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0",
		"GOWORK="+filepath.Join(r.source, "go.work"), "GOFIPS140=off",
		"GOFLAGS=-trimpath", // an empty value would not hide that of "go env -w"
	)
	if cache != "" {
		env = append(env, "GOCACHE="+cache)
	}
	const variable = " -X " + program + "/internal/cli."
	linker := "-s -w" + variable + "version=" + r.version + variable + "commit=" + r.commit + variable + "date=" + r.date.Format(time.RFC3339)
	out := filepath.Join(filepath.Dir(r.source), p.binary())
	if _, err := command(r.source, env, "go", "build", "-buildvcs=false", "-ldflags="+linker, "-o", out, "./cmd/tidings"); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// command runs a command in a folder and returns its output.
func command(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaints.Bytes())
	}
	return out.String(), nil
}
