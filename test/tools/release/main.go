// Command release rehearses a release: it publishes the library and the program, as
// they are in the working tree, to a module proxy of files, installs the program from
// there as users do, and builds a module that uses the library beside one that uses
// client-go's informers. docs/releasing.md says when to run it.
//
//	go -C test/tools run ./release                    # rehearse
//	go -C test/tools run ./release -times             # with empty build caches, and say what the builds take
//	go -C test/tools run ./release -before 35ac922    # and compare with an older library
//
// Nothing is left behind: module cache and binaries are in a temporary folder.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	library = "github.com/tidings-io/tidings"
	program = library + "/cmd/tidings"
	journal = library + "/journal"
)

func main() {
	var r rehearsal
	flag.StringVar(&r.root, "root", "../..", "`folder` of the repository")
	flag.StringVar(&r.before, "before", "", "an older `commit` of the library to compare with")
	flag.BoolVar(&r.times, "times", false, "build with empty build caches, and print the CPU time that it takes")
	flag.Parse()
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type rehearsal struct {
	root, before string
	times        bool

	temp, proxy string
	env         []string
}

func (r *rehearsal) run() (err error) {
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.temp, err = os.MkdirTemp("", "release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.temp)
	r.proxy = filepath.Join(r.temp, "proxy")
	if err := r.environment(); err != nil {
		return err
	}
	version, err := r.version()
	if err != nil {
		return err
	}
	if err := r.publish(module.Version{Path: library, Version: version}, r.root); err != nil {
		return err
	}
	for _, path := range []string{program, journal} {
		if err := r.publish(module.Version{Path: path, Version: version}, filepath.Join(r.root, strings.TrimPrefix(path, library))); err != nil {
			return err
		}
	}
	if err := r.install(version); err != nil {
		return err
	}

	peer, err := r.build("clientgo", usesClientGo)
	if err != nil {
		return err
	}
	fmt.Println("\n| a module that uses | binary, MB | build, CPU s | go.mod: direct | indirect | go.sum: modules | module graph |\n|---|---:|---:|---:|---:|---:|---:|")
	peer.print("client-go's informers", nil)
	now, err := r.build("informer", usesInformer, module.Version{Path: library, Version: version})
	if err != nil {
		return err
	}
	now.print("informer "+version, peer)
	kept, err := r.build("journal", usesJournal, module.Version{Path: library, Version: version}, module.Version{Path: journal, Version: version})
	if err != nil {
		return err
	}
	kept.print("informer and journal "+version, peer)
	if r.before != "" {
		const older = "v0.0.1-before"
		dir, err := r.checkout(r.before)
		if err != nil {
			return err
		}
		if err := r.publish(module.Version{Path: library, Version: older}, dir); err != nil {
			return err
		}
		before, err := r.build("before", usesInformer, module.Version{Path: library, Version: older})
		if err != nil {
			return err
		}
		before.print("informer "+r.before, peer)
	}
	return nil
}

// environment sets what the go command runs with: no workspace, a module cache of its
// own, and a proxy of files before the usual one. The user's module cache serves as
// a proxy, too, so that a warm one needs no network.
func (r *rehearsal) environment() error {
	out, err := exec.Command("go", "env", "-json", "GOMODCACHE", "GOPROXY", "GOFLAGS").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	var user struct{ GOMODCACHE, GOPROXY, GOFLAGS string }
	if err := json.Unmarshal(out, &user); err != nil {
		return err
	}
	proxies := []string{"file://" + filepath.ToSlash(r.proxy), "file://" + filepath.ToSlash(filepath.Join(user.GOMODCACHE, "cache", "download")), user.GOPROXY}
	r.env = append(os.Environ(),
		"GOWORK=off",
		"GOPROXY="+strings.Join(proxies, ","),
		"GONOPROXY=none",
		// Checksums of an unpublished release are in no database. The others are
		// compared with the program's go.sum: see install.
		"GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(r.temp, "modules"),
		"GOBIN="+filepath.Join(r.temp, "bin"),
		// With -trimpath, the build cache does not depend on the folder of the module cache.
		"GOFLAGS="+strings.TrimSpace(user.GOFLAGS+" -modcacherw -trimpath"),
	)
	return nil
}

// version returns the version of the library that the other modules require. The
// workspace must replace that very version.
func (r *rehearsal) version() (string, error) {
	var want module.Version
	for _, path := range []string{program, journal} {
		name := filepath.Join(r.root, strings.TrimPrefix(path, library), "go.mod")
		mod, err := readMod(name)
		if err != nil {
			return "", err
		}
		required := slices.IndexFunc(mod.Require, func(q *modfile.Require) bool { return q.Mod.Path == library })
		if required < 0 {
			return "", fmt.Errorf("%s does not require %s", name, library)
		}
		if got := mod.Require[required].Mod; want.Path != "" && got != want {
			return "", fmt.Errorf("%s requires %s, another module requires %s", name, got, want)
		}
		want = mod.Require[required].Mod
	}
	name := filepath.Join(r.root, "go.work")
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	work, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(work.Replace, func(p *modfile.Replace) bool { return p.Old == want }) {
		return "", fmt.Errorf("%s does not replace %s, which the other modules require", name, want)
	}
	return want.Version, nil
}

func readMod(name string) (*modfile.File, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, data, nil)
}

// publish adds the module in dir to the proxy.
func (r *rehearsal) publish(m module.Version, dir string) error {
	to := filepath.Join(r.proxy, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, m, dir); err != nil {
		return fmt.Errorf("pack %s: %w", m, err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(to, "list"), []byte(m.Version+"\n"), 0o644),
		os.WriteFile(filepath.Join(to, m.Version+".info"), fmt.Appendf(nil, "{%q: %q}\n", "Version", m.Version), 0o644),
		os.WriteFile(filepath.Join(to, m.Version+".mod"), mod, 0o644),
		os.WriteFile(filepath.Join(to, m.Version+".zip"), archive.Bytes(), 0o644),
	)
}

// checkout writes the files of a commit to a folder.
func (r *rehearsal) checkout(commit string) (dir string, err error) {
	dir, archive := filepath.Join(r.temp, "before-tree"), filepath.Join(r.temp, "before.tar")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if _, _, err := command(r.root, r.env, "git", "archive", "-o", archive, commit); err != nil {
		return "", err
	}
	_, _, err = command(dir, r.env, "tar", "-xf", archive)
	return dir, err
}

// install installs and runs the program, and compares the modules that it is built
// of with its go.sum.
func (r *rehearsal) install(version string) error {
	if _, _, err := command(r.temp, r.env, "go", "install", program+"@"+version); err != nil {
		return err
	}
	binary := filepath.Join(r.temp, "bin", "tidings")
	said, _, err := command(r.temp, r.env, binary, "version")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(said, "tidings "+version+" ") {
		return fmt.Errorf("the installed program is another version than %s: %s", version, said)
	}
	sums, err := os.ReadFile(filepath.Join(r.root, "cmd", "tidings", "go.sum"))
	if err != nil {
		return err
	}
	linked, _, err := command(r.temp, r.env, "go", "version", "-m", binary)
	if err != nil {
		return err
	}
	modules := 0
	for line := range strings.Lines(linked) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "dep" || f[1] == library {
			continue
		}
		modules++
		if !bytes.Contains(sums, []byte(strings.Join(f[1:], " ")+"\n")) {
			return fmt.Errorf("the installed program has %s %s with another checksum than cmd/tidings/go.sum, or none", f[1], f[2])
		}
	}
	fmt.Printf("go install %s@%s: %.1f MB, of %d other modules; it says: %s", program, version, megabytes(binary), modules, said)
	return nil
}

// consumer is a module that uses the library or client-go's informers.
type consumer struct {
	megabytes        float64
	took             string
	direct, indirect map[string]bool // in go.mod
	sums             map[string]bool // in go.sum
	graph            map[string]bool // of which versions are selected
}

// build makes a module of one file, which uses modules of ours or none, and builds it.
func (r *rehearsal) build(name, source string, uses ...module.Version) (*consumer, error) {
	dir := filepath.Join(r.temp, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	own, err := readMod(filepath.Join(r.root, "go.mod"))
	if err != nil {
		return nil, err
	}
	mod := fmt.Sprintf("module example.com/%s\n\ngo %s\n", name, own.Go.Version)
	for _, q := range own.Require {
		if strings.HasPrefix(q.Mod.Path, "k8s.io/") && !q.Indirect {
			mod += fmt.Sprintf("require %s %s\n", q.Mod.Path, q.Mod.Version)
		}
	}
	for _, m := range uses {
		mod += fmt.Sprintf("require %s %s\n", m.Path, m.Version)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644),
	); err != nil {
		return nil, err
	}
	env := r.env
	if r.times {
		env = append(env, "GOCACHE="+filepath.Join(r.temp, "cache-"+name))
	}
	// tidy has all modules fetched: the time is of the build alone.
	if _, _, err := command(dir, env, "go", "mod", "tidy"); err != nil {
		return nil, err
	}
	_, took, err := command(dir, env, "go", "build", "-o", "consumer", ".")
	if err != nil {
		return nil, err
	}
	c := &consumer{took: "–", megabytes: megabytes(filepath.Join(dir, "consumer"))}
	if r.times {
		c.took = fmt.Sprintf("%.0f", took.Seconds())
	}
	tidied, err := readMod(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	c.direct, c.indirect, c.sums, c.graph = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, q := range tidied.Require {
		if q.Indirect {
			c.indirect[q.Mod.Path] = true
		} else {
			c.direct[q.Mod.Path] = true
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		path, _, _ := strings.Cut(line, " ")
		c.sums[path] = true
	}
	graph, _, err := command(dir, env, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all")
	if err != nil {
		return nil, err
	}
	for path := range strings.FieldsSeq(graph) {
		c.graph[path] = true
	}
	return c, nil
}

// print prints the row of a consumer, with what it has beside its peer, if there is one.
func (c *consumer) print(what string, peer *consumer) {
	if peer == nil {
		fmt.Printf("| %s | %.1f | %s | %d | %d | %d | %d |\n", what, c.megabytes, c.took, len(c.direct), len(c.indirect), len(c.sums), len(c.graph))
		return
	}
	known := maps.Clone(peer.direct)
	maps.Copy(known, peer.indirect)
	fmt.Printf("| %s | %.1f | %s | %s | %s | %s | %s |\n", what, c.megabytes, c.took,
		beside(c.direct, known), beside(c.indirect, known), beside(c.sums, peer.sums), beside(c.graph, peer.graph))
}

// beside returns the number of paths and of those that are not known.
func beside(paths, known map[string]bool) string {
	more := 0
	for path := range paths {
		if !known[path] {
			more++
		}
	}
	return fmt.Sprintf("%d (%d more)", len(paths), more)
}

func megabytes(name string) float64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return float64(info.Size()) / 1e6
}

// command runs a command and returns its output, and the CPU time that it took.
func command(dir string, env []string, name string, args ...string) (string, time.Duration, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", 0, fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{filepath.Base(name)}, args...), " "), err, complaints.Bytes())
	}
	return out.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
