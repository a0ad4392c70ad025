package apipath

import (
	"net/url"
	"slices"
	"strings"
)

// Path identifies a resource of the Kubernetes API or, with a Name, one object.
type Path struct {
	Group, Version, Resource string
	Namespace                string // empty: all namespaces, or the resource has none
	Name                     string // empty: all objects
}

// parts returns the segments of the path. A Namespace is in itself, so its path
// contains its name only once.
func (p Path) parts() []string {
	parts := []string{"apis", p.Group, p.Version}
	if p.Group == "" {
		parts = []string{"api", p.Version}
	}
	if p.Namespace != "" && !p.isNamespace() {
		parts = append(parts, "namespaces", p.Namespace)
	}
	parts = append(parts, p.Resource)
	if p.Name != "" {
		parts = append(parts, p.Name)
	}
	return parts
}

func (p Path) isNamespace() bool {
	return p.Group == "" && p.Resource == "namespaces" && p.Name == p.Namespace
}

// URL returns the URL of the path at the server with the URL base; see [Join].
func (p Path) URL(base *url.URL) (*url.URL, error) { return Join(base, p.parts()...) }

// Spelling is how a URL path spells a [Path].
type Spelling struct {
	// Watch is set for the deprecated form of a watch, with the segment "watch"
	// after the version.
	Watch bool
	// NoNamespace is set for a path with an empty segment after "namespaces".
	NoNamespace bool
}

// Is reports whether path, the unescaped path of a request, is exactly p, and how it
// is spelled. It ignores trailing slashes, as the API server does.
func (p Path) Is(path string) (s Spelling, ok bool) {
	path, ok = strings.CutPrefix(path, "/")
	parts, found := p.parts(), strings.Split(strings.TrimRight(path, "/"), "/")
	at := 2 // after the version
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
