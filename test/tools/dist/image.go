package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image packs the Linux programs into an image for all their platforms, as an OCI
// archive. It is the image that the Dockerfile describes, but from pinned certificates.
func (r *release) image(binaries map[platform][]byte) ([]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		if p.os != "linux" || binaries[p] == nil {
			continue
		}
		image, err := r.imageFor(p, binaries[p])
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	dir, err := os.MkdirTemp("", "dist-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})); err != nil {
		return nil, err
	}
	var entries []entry
	files := os.DirFS(dir)
	err = fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		entries = append(entries, entry{name, 0o644, data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return tarred(entries, r.date)
}

func (r *release) imageFor(p platform, binary []byte) (v1.Image, error) {
	files, err := tarred([]entry{
		{"etc/ssl/certs/ca-certificates.crt", 0o444, authorities()},
		{"tidings", 0o555, binary},
	}, r.date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "test/tools/dist"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(mutate.ConfigMediaType(image, types.OCIConfigJSON), r.config(image, p))
}

// config is how the image is run.
func (r *release) config(image v1.Image, p platform) *v1.ConfigFile {
	was, err := image.ConfigFile()
	if err != nil {
		panic(err) // it was made here
	}
	c := was.DeepCopy()
	c.OS, c.Architecture, c.Created = p.os, p.arch, v1.Time{Time: r.date}
	c.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/tidings"}, Cmd: []string{"serve"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "tidings",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.created":  r.date.Format(time.RFC3339),
			"org.opencontainers.image.source":   "https://" + library,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return c
}

// authorities are the public certificate authorities of Mozilla, from the module of Go
// that has them. Those which may sign some certificates only are left out, because a file
// cannot say which.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}
