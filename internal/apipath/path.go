package apipath

import (
	"net/url"
	"slices"
	"strings"
)

// Path names a resource of the Kubernetes API or, with a Name, one object of it.
type Path struct {
	Group, Version, Resource string
	Namespace                string // empty: all namespaces, or the resource has none
	Name                     string // empty: all objects
}

// parts are the segments of the path. A Namespace is its own namespace: the path
// of one names it once.
func (p Path) parts() []string {
	parts := []string{"apis", p.Group, p.Version}
	if p.Group == "" {
		parts = []string{"api", p.Version}
	}
	if p.Namespace != "" && !p.namesItself() {
		parts = append(parts, "namespaces", p.Namespace)
	}
	parts = append(parts, p.Resource)
	if p.Name != "" {
		parts = append(parts, p.Name)
	}
	return parts
}

func (p Path) namesItself() bool {
	return p.Group == "" && p.Resource == "namespaces" && p.Name == p.Namespace
}

// URL is the address of the path at a server whose own address is base; see
// [Join].
func (p Path) URL(base *url.URL) (*url.URL, error) { return Join(base, p.parts()...) }

// Spelling is how a path is written that means a [Path].
type Spelling struct {
	// Watch: in the older form of a watch, with that word behind the version.
	Watch bool
	// NoNamespace: with the word namespaces, and an empty one behind it.
	NoNamespace bool
}

// Is says whether an unescaped path, as a server reads it, is this one and nothing
// else, and how it is written. Slashes at its end make no difference, as at an API
// server.
func (p Path) Is(path string) (s Spelling, ok bool) {
	path, ok = strings.CutPrefix(path, "/")
	parts, found := p.parts(), strings.Split(strings.TrimRight(path, "/"), "/")
	at := 2 // behind the version
	if p.Group != "" {
		at = 3
	}
	if !ok || len(found) < at {
		return s, false
	}
	if s.Watch = len(found) > at && found[at] == "watch"; s.Watch {
		found = slices.Delete(found, at, at+1)
	}
	if s.NoNamespace = p.Namespace == "" && len(found) > at+1 && found[at] == "namespaces" && found[at+1] == ""; s.NoNamespace {
		found = slices.Delete(found, at, at+2)
	}
	return s, slices.Equal(parts, found)
}
