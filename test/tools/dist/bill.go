package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// bill returns the bill of materials of a binary: the modules that the linker found in
// it, and Go's standard library, as CycloneDX.
func (r *release) bill(p platform, binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	main := module(program, r.version, "")
	main.Type = cyclonedx.ComponentTypeApplication
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(binary))}}
	main.Properties = &[]cyclonedx.Property{{Name: "platform", Value: p.String()}, {Name: "commit", Value: r.commit}}
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}

	components := []cyclonedx.Component{module("std", "v"+strings.TrimPrefix(info.GoVersion, "go"), "")}
	refs := []string{components[0].BOMRef}
	for _, m := range info.Deps {
		if m.Path == library {
			// The workspace builds it from the commit, so it has no version.
			m = &debug.Module{Path: library, Version: r.version}
		} else if m.Replace != nil {
			m = m.Replace
		}
		c := module(m.Path, m.Version, m.Sum)
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return b.Bytes(), err
}

// module is a component. sum is the checksum in go.sum: the hash of a list of files.
func module(path, version, sum string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{
		BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url,
	}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) > 0 {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return c
}
