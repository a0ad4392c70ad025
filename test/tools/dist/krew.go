package main

import (
	"crypto/sha256"
	"fmt"

	"sigs.k8s.io/yaml"
)

// plugin is krew's manifest of a kubectl plugin: apiVersion
// krew.googlecontainertools.github.com/v1alpha2, kind Plugin.
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec pluginSpec `json:"spec"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string       `json:"uri"`
	SHA256 string       `json:"sha256"`
	Files  []pluginFile `json:"files"`
	Bin    string       `json:"bin"`
}

type pluginFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krew returns the manifest with which krew installs the archives as "kubectl tidings".
func (r *release) krew(archives map[platform]archive) ([]byte, error) {
	var m plugin
	m.APIVersion, m.Kind, m.Metadata.Name = "krew.googlecontainertools.github.com/v1alpha2", "Plugin", "tidings"
	m.Spec = pluginSpec{
		Version: r.version, Homepage: "https://" + library,
		ShortDescription: "Follow, query and mirror resources",
		Description: `Tidings keeps a live, local, indexed mirror of Kubernetes resources and delivers
their changes.

  kubectl tidings watch   prints each change of any resource, across disconnects
  kubectl tidings get     prints resources, from a cluster or from a running mirror
  kubectl tidings serve   mirrors clusters and answers any number of readers
`,
	}
	for _, p := range platforms {
		a, ok := archives[p]
		if !ok {
			continue
		}
		to := pluginPlatform{
			URI:    fmt.Sprintf("https://%s/releases/download/%s/%s", library, r.version, a.name),
			SHA256: fmt.Sprintf("%x", sha256.Sum256(a.data)),
			Files:  []pluginFile{{p.binary(), "."}, {"LICENSE", "."}},
			Bin:    p.binary(),
		}
		to.Selector.MatchLabels = map[string]string{"os": p.os, "arch": p.arch}
		m.Spec.Platforms = append(m.Spec.Platforms, to)
	}
	return yaml.Marshal(m)
}
