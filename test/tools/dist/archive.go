package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// archive is what users download for one platform.
type archive struct {
	name string
	data []byte
}

// entry is a file in an archive or in an image.
type entry struct {
	name string
	mode int64
	data []byte
}

// archive packs the program with its license and changelog.
func (r *release) archive(p platform, binary []byte) (archive, error) {
	entries := []entry{{p.binary(), 0o755, binary}}
	for _, name := range []string{"CHANGELOG.md", "LICENSE", "README.md"} {
		data, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return archive{}, err
		}
		entries = append(entries, entry{name, 0o644, data})
	}
	if p.os == "windows" {
		data, err := zipped(entries, r.date)
		return archive{r.file(p, "zip"), data}, err
	}
	data, err := tarred(entries, r.date)
	if err != nil {
		return archive{}, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return archive{}, err
	}
	if _, err := z.Write(data); err != nil {
		return archive{}, err
	}
	if err := z.Close(); err != nil {
		return archive{}, err
	}
	return archive{r.file(p, "tar.gz"), b.Bytes()}, nil
}

// tarred packs files of the given date, which belong to nobody.
func tarred(entries []entry, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: date, Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func zipped(entries []entry, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: date}
		h.SetMode(os.FileMode(e.mode))
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// checksums is what "sha256sum --check" reads.
func checksums(files map[string][]byte) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return b.Bytes()
}
