package apipath

import (
	"net/url"
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

// Is says whether an unescaped path, as a server reads it, is this one and nothing
// else. A slash at its end makes no difference, as at an API server. watch says
// that it is the older form of a watch, with that word behind the version.
func (p Path) Is(path string) (watch, ok bool) {
	parts := p.parts()
	found := strings.Split(strings.Trim(path, "/"), "/")
	if watch = len(found) == len(parts)+1; watch {
		at := 2
		if p.Group != "" {
			at = 3
		}
		if found[at] != "watch" {
			return false, false
		}
		found = append(found[:at:at], found[at+1:]...)
	}
	if len(found) != len(parts) {
		return false, false
	}
	for i := range parts {
		if parts[i] != found[i] {
			return false, false
		}
	}
	return watch, true
}
