// Package page has the page that `tidings serve` shows to browsers: a live table of any
// resource. The sources are in src; dist has what test/tools/page builds from them. The
// page reads by the routes of package server, like every other client.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed dist
var dist embed.FS

// policy lets the page load its own files and read from its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is a file of the page.
type file struct {
	mediaType string
	plain     []byte
	packed    []byte // compressed once
	etag      string
}

// files are the files of the page by their paths.
var files = sync.OnceValue(func() map[string]*file {
	out := map[string]*file{}
	for at, mediaType := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/app.js": "text/javascript; charset=utf-8",
		"/page/app.css": "text/css; charset=utf-8", "/page/icon.svg": "image/svg+xml",
	} {
		name := path.Base(at)
		if at == "/" {
			name = "index.html"
		}
		plain, err := dist.ReadFile("dist/" + name)
		if err != nil {
			panic(fmt.Errorf("the page: %w", err)) // cannot happen: it is embedded
		}
		sum := sha256.Sum256(plain)
		out[at] = &file{mediaType: mediaType, plain: plain, packed: pack(plain), etag: `"` + hex.EncodeToString(sum[:8])}
	}
	return out
})

func pack(plain []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	_, _ = z.Write(plain)                                   // to memory
	_ = z.Close()
	return out.Bytes()
}

// Has reports whether a path is that of a file of the page, other than the page itself.
func Has(at string) bool { return at != "/" && files()[at] != nil }

// Serve answers with the file at a path, for which [Has] is true, or with the page itself
// at "/".
func Serve(w http.ResponseWriter, r *http.Request, at string) {
	f := files()[at]
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // ask again; the ETag says whether it has changed
	h.Set("Content-Type", f.mediaType)
	h.Add("Vary", "Accept-Encoding")
	content, etag := f.plain, f.etag+`"`
	if acceptsGzip(r) {
		content, etag = f.packed, f.etag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reports whether the client accepts gzip, as browsers say it.
func acceptsGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(part string) bool {
		coding, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		return strings.EqualFold(coding, "gzip") && strings.TrimSpace(quality) != "q=0"
	})
}
