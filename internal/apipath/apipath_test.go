package apipath_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/internal/apipath"
)

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		base  string
		parts []string
		want  string
	}{
		{"https://a:6443", []string{"api", "v1"}, "https://a:6443/api/v1"},
		{"https://a/", []string{"version"}, "https://a/version"},
		{"https://a/k8s/clusters/c-1/", []string{"apis"}, "https://a/k8s/clusters/c-1/apis"},
		{"https://a/x%2Fy", []string{"apis"}, "https://a/x%2Fy/apis"},
		{"https://a?b=c#d", []string{"apis"}, "https://a/apis"},
		{"https://a", []string{"x?y#z"}, "https://a/x%3Fy%23z"},
		{"https://a", []string{`..\..`, "a b;c", "\x00\xff"}, "https://a/..%5C../a%20b%3Bc/%00%FF"},
		{"https://a/b/", nil, "https://a/b"},
	} {
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		got, err := apipath.Join(base, c.parts...)
		if err != nil {
			t.Errorf("%s and %q: %v", c.base, c.parts, err)
		} else if got.String() != c.want {
			t.Errorf("%s and %q: %s, want %s", c.base, c.parts, got, c.want)
		}
		if base.String() != c.base {
			t.Errorf("%s has become %s", c.base, base)
		}
	}
	for _, part := range []string{"", ".", "..", "/", "a/b", "../x", "x/", "%2e%2e", "a%2fb", "%"} {
		if got, err := apipath.Join(&url.URL{Scheme: "https", Host: "a"}, "api", part); err == nil {
			t.Errorf("%q leads to %s", part, got)
		}
	}
}

// FuzzJoin checks that a server that parses the URL gets the same parts after the
// same prefix, and nothing after them.
func FuzzJoin(f *testing.F) {
	for _, seed := range [][2]string{{"v1", "pods"}, {"..", "."}, {"a/b", ""}, {"%2f", "?x=#"}, {"\\..\\", "\xff;"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		got, err := apipath.Join(&url.URL{Scheme: "https", Host: "a", Path: "/prefix"}, first, second)
		bad := slices.ContainsFunc([]string{first, second}, func(part string) bool {
			return part == "" || part == "." || part == ".." || strings.ContainsAny(part, "/%")
		})
		if bad != (err != nil) {
			t.Fatalf("%q %q: %v", first, second, err)
		}
		if err != nil {
			return
		}
		read, err := url.Parse(got.String())
		if err != nil {
			t.Fatalf("%q %q: %v", first, second, err)
		}
		if read.Host != "a" || read.RawQuery != "" || read.Fragment != "" {
			t.Fatalf("%q %q leads to %s", first, second, read)
		}
		segments := strings.Split(read.EscapedPath(), "/")[1:]
		for i, s := range segments {
			if segments[i], err = url.PathUnescape(s); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(segments, []string{"prefix", first, second}) {
			t.Fatalf("%q %q are read as %q", first, second, segments)
		}
		if clean := read.JoinPath(); clean.EscapedPath() != read.EscapedPath() {
			t.Fatalf("%s is cleaned to %s", read, clean)
		}
	})
}
