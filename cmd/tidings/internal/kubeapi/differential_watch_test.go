package kubeapi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// compareWatch sends both a watch that ends soon. The events must be the same, except for
// bookmarks, whose times differ.
func (d *differential) compareWatch(q ask) {
	if d.allow(q) {
		return
	}
	// The first list of a resource may take longer than the watch.
	d.ours.get(strings.Replace(q.path, "/watch/", "/", 1))
	var theirs, ours answer
	var why string
	for range 3 { // the API server itself goes on writing a lease and a condition now and then
		theirs, ours = d.theirs.ask(q), d.ours.ask(q)
		theirs.body, ours.body = withoutBookmarks(theirs), withoutBookmarks(ours)
		if why = differ(theirs, ours); why == "" {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if why != "" && expired(theirs) != expired(ours) {
		d.allowed["Watches reach back"]++
		return
	}
	d.codes[ours.code]++
	if why != "" {
		d.failed++
		d.Errorf("%s: watch %s  Accept: %s: %s", d.caller.name, q.url(), q.accept, why)
	}
}

// expired reports whether the version of a watch was too old. How far back a watch can
// begin is known to differ.
func expired(a answer) bool {
	return a.code == http.StatusGone || bytes.Contains(a.body, []byte("too old resource version"))
}

// The oldest version in the message differs too.
var oldest = regexp.MustCompile(`(too old resource version: \d+) \(\d+\)`)

var versionOfBookmark = regexp.MustCompile(`"resourceVersion":"\d+"`)

// withoutBookmarks returns the events of a watch without bookmarks. It keeps the one at the
// end of the initial events, without its version.
func withoutBookmarks(a answer) []byte {
	if a.code != http.StatusOK {
		return a.body
	}
	a.body = oldest.ReplaceAll(a.body, []byte("$1"))
	var out []byte
	if !strings.HasPrefix(a.header.Get("Content-Type"), protobuf) {
		for line := range bytes.Lines(a.body) {
			if bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
				if !bytes.Contains(line, []byte("initial-events-end")) {
					continue
				}
				line = versionOfBookmark.ReplaceAll(line, nil)
			}
			out = append(out, line...)
		}
		return out
	}
	for body := a.body; len(body) >= 4; {
		n := int(binary.BigEndian.Uint32(body))
		if n > len(body)-4 {
			return fmt.Appendf(out, "cut off: %q", body)
		}
		switch frame := body[4 : 4+n]; {
		case !bytes.Contains(frame, []byte("BOOKMARK")):
			out = append(out, frame...)
		case bytes.Contains(frame, []byte("initial-events-end")):
			out = append(out, "the end of the initial events"...)
		}
		body = body[4+n:]
	}
	return out
}
