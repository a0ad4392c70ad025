package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

// here is the platform of the tests. The image has a program only if it is Linux.
var here = platform{runtime.GOOS, runtime.GOARCH}

// Two builds in different folders and environments give the same files. They are what docs/releasing.md
// says that they are.
func TestRelease(t *testing.T) {
	if _, err := os.Stat(root + "/.git"); err != nil {
		t.Skipf("a release is built from a commit, and this is no checkout: %v", err)
	}
	head, err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "HEAD").Output() // it may move on meanwhile
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(head))
	out, again := t.TempDir(), t.TempDir()
	sums, err := dist(root, commit, out, []platform{here}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("GOAMD64", "v3")
	repeated, err := dist(root, commit, again, []platform{here}, "")
	if err != nil || !bytes.Equal(sums, repeated) {
		t.Fatalf("the second build: %v, it has other checksums:\n%s\n%s", err, sums, repeated)
	}
	manifest := read(t, filepath.Join(out, "tidings.yaml"))
	var m plugin
	if err := yaml.UnmarshalStrict(manifest, &m); err != nil {
		t.Fatal(err)
	}
	file := func(rest string) string { return filepath.Join(out, "tidings_"+m.Spec.Version+"_"+rest) }
	platformFile := func(extension string) string { return file(here.os + "_" + here.arch + "." + extension) }

	if got := read(t, file("checksums.txt")); !bytes.Equal(got, sums) || strings.Count(string(sums), "\n") != 4 {
		t.Errorf("checksums of other files:\n%s", got)
	}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(out, name)))); got != sum {
			t.Errorf("%s has the checksum %s, not %s", name, got, sum)
		}
	}
	binary := install(t, m, out)
	checkVersion(t, binary, m.Spec.Version, commit)
	checkBill(t, platformFile("cdx.json"), m.Spec.Version)
	if here.os == "linux" {
		checkImage(t, file("image.tar"), read(t, binary))
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// install checks a manifest by krew's rules, does what krew does with it, and returns
// the path of the plugin.
func install(t *testing.T, m plugin, dir string) string {
	t.Helper()
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "tidings" {
		t.Errorf("krew does not know %s %s %s", m.APIVersion, m.Kind, m.Metadata.Name)
	}
	if !semver.IsValid(m.Spec.Version) || m.Spec.Description == "" || m.Spec.ShortDescription == "" || strings.ContainsAny(m.Spec.ShortDescription, "\r\n") || len(m.Spec.ShortDescription) > 50 {
		t.Errorf("krew refuses version or descriptions: %+v", m.Spec)
	}
	if len(m.Spec.Platforms) != 1 || m.Spec.Platforms[0].Selector.MatchLabels["os"] != here.os || m.Spec.Platforms[0].Selector.MatchLabels["arch"] != here.arch {
		t.Fatalf("the manifest is for %+v, not for %s", m.Spec.Platforms, here)
	}
	p := m.Spec.Platforms[0]
	const releases = "https://github.com/tidings-io/tidings/releases/download/"
	name, ok := strings.CutPrefix(p.URI, releases+m.Spec.Version+"/")
	if !ok || strings.Contains(name, "/") {
		t.Fatalf("%s is not a file of the release", p.URI)
	}
	data := read(t, filepath.Join(dir, name))
	if fmt.Sprintf("%x", sha256.Sum256(data)) != p.SHA256 || !regexp.MustCompile("^[a-f0-9]{64}$").MatchString(p.SHA256) {
		t.Errorf("%s has another checksum than %s", name, p.SHA256)
	}
	packed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	var names []string
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if names = append(names, h.Name); h.Uid != 0 || h.Uname != "" || h.Typeflag != tar.TypeReg {
			t.Errorf("%s tells of the machine that packed it: %+v", h.Name, h)
		}
		if !slices.Contains(p.Files, pluginFile{h.Name, "."}) {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, h.Name), data, os.FileMode(h.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"tidings", "CHANGELOG.md", "LICENSE", "README.md"}; !slices.Equal(names, want) {
		t.Errorf("%s has the files %v, not %v", name, names, want)
	}
	link := filepath.Join(to, "kubectl-tidings")
	if err := os.Symlink(filepath.Join(to, p.Bin), link); err != nil {
		t.Fatal(err)
	}
	if help := output(t, link, "--help"); !strings.Contains(help, "kubectl tidings watch") {
		t.Errorf("the plugin says\n%s", help)
	}
	return link
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, said)
	}
	return string(said)
}

// checkVersion checks what the program says that it is.
func checkVersion(t *testing.T, binary, version, commit string) {
	t.Helper()
	var says struct{ Version, Commit, Date, Go, Platform string }
	if err := json.Unmarshal([]byte(output(t, binary, "version", "-o", "json")), &says); err != nil {
		t.Fatal(err)
	}
	git := exec.CommandContext(t.Context(), "git", "show", "-s", "--format=%H %ct", commit)
	git.Dir = root
	said, err := git.Output()
	if err != nil {
		t.Fatal(err)
	}
	date, err := time.Parse(time.RFC3339, says.Date)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %d\n", says.Commit, date.Unix()); got != string(said) || says.Version != version || says.Go != runtime.Version() || says.Platform != here.String() {
		t.Errorf("the program says %+v, it is %s of %s", says, version, said)
	}
}

// checkBill checks that a bill of materials has what go.mod requires, with go.sum's
// checksums.
func checkBill(t *testing.T, name, version string) {
	t.Helper()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(read(t, name)), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	has := map[string]cyclonedx.Component{}
	for _, c := range *bom.Components {
		has[c.Name] = c
		if c.Version == "" || c.Version == "(devel)" || c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%s cannot be looked up: %+v", c.Name, c)
		}
	}
	if bom.Metadata.Component.Name != program || bom.Metadata.Component.Version != version || has[library].Version != version || has["std"].Version != "v"+strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("the bill is for %+v, with %+v and %+v", bom.Metadata.Component, has[library], has["std"])
	}
	client := has["k8s.io/client-go"]
	if client.Hashes == nil {
		t.Fatalf("client-go is missing or has no checksum: %+v", client)
	}
	hash, err := hex.DecodeString((*client.Hashes)[0].Value)
	if line := "k8s.io/client-go " + client.Version + " h1:" + base64.StdEncoding.EncodeToString(hash) + "\n"; err != nil ||
		!bytes.Contains(read(t, root+"/cmd/tidings/go.sum"), []byte(line)) {
		t.Errorf("cmd/tidings/go.sum lacks %q: %v", line, err)
	}
}

// checkImage checks that the image has the program, and is run as the Dockerfile says.
func checkImage(t *testing.T, name string, binary []byte) {
	t.Helper()
	dir := t.TempDir()
	output(t, "tar", "-C", dir, "-xf", name)
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Fatal(err)
	}
	top, err := all.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("%v: %+v", err, top)
	}
	index, err := all.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || !manifest.Manifests[0].Platform.Equals(v1.Platform{OS: here.os, Architecture: here.arch}) {
		t.Fatalf("%v: %+v", err, manifest)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%v: %d layers", err, len(layers))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	r := tar.NewReader(content)
	for _, want := range []string{"etc/ssl/certs/ca-certificates.crt", "tidings"} {
		h, err := r.Next()
		if err != nil || h.Name != want || h.Mode&0o222 != 0 {
			t.Fatalf("%v: %+v instead of %s", err, h, want)
		}
		data, err := io.ReadAll(r)
		if err != nil || want == "tidings" && !bytes.Equal(data, binary) || want != "tidings" && bytes.Count(data, []byte("BEGIN CERTIFICATE")) < 50 {
			t.Errorf("%v: another %s", err, want)
		}
	}

	var stages []struct{ Commands []struct{ Name, Args any } }
	dockerfile := exec.CommandContext(t.Context(), "go", "run", "../dockerfile", root+"/Dockerfile")
	said, err := dockerfile.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(said, &stages); err != nil {
		t.Fatal(err)
	}
	last := map[any]string{}
	for _, c := range stages[len(stages)-1].Commands {
		last[c.Name] = fmt.Sprint(c.Args)
	}
	for command, got := range map[string]any{"user": []string{config.Config.User}, "entrypoint": config.Config.Entrypoint, "cmd": config.Config.Cmd} {
		if fmt.Sprint(got) != last[command] {
			t.Errorf("the image has %s %v, the Dockerfile %s", command, got, last[command])
		}
	}
}

// An archive for Windows is a zip, with the program as an .exe.
func TestWindowsArchive(t *testing.T) {
	r := &release{version: "v1.2.3", source: root, date: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}
	a, err := r.archive(platform{"windows", "amd64"}, []byte("program"))
	if err != nil || a.name != "tidings_v1.2.3_windows_amd64.zip" {
		t.Fatalf("%s %v", a.name, err)
	}
	z, err := zip.NewReader(bytes.NewReader(a.data), int64(len(a.data)))
	if err != nil {
		t.Fatal(err)
	}
	if f := z.File[0]; f.Name != "tidings.exe" || f.Mode() != 0o755 || !f.Modified.Equal(r.date) {
		t.Errorf("%+v", f.FileHeader)
	}
}

// The library and the program compile for each operating system of a release: the types
// are checked without generating code, which would take minutes.
func TestCompilesForOtherSystems(t *testing.T) {
	for _, p := range []platform{{"linux", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}} {
		if p.os == here.os {
			continue
		}
		pkgs, err := packages.Load(&packages.Config{
			Context: t.Context(), Dir: root, Mode: packages.LoadAllSyntax,
			Env: append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOWORK="),
		}, "./cluster", "./informer/...", "./cmd/tidings/...", "./internal/controlplane")
		if err != nil {
			t.Fatal(err)
		}
		if len(pkgs) < 20 {
			t.Errorf("%s: only %d packages", p, len(pkgs))
		}
		for _, pkg := range pkgs {
			for _, err := range pkg.Errors {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}
