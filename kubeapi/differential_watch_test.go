package kubeapi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// compareWatch asks both for a watch that ends soon: what they tell is to be the
// same, but for bookmarks, which come when they come.
func (d *differential) compareWatch(q ask) {
	if d.allow(q) {
		return
	}
	// What is not mirrored yet may take longer to begin with than the watch lasts.
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

// expired says that a watch was told that its version is too old. How far back
// a watch reaches is known to differ.
func expired(a answer) bool {
	return a.code == http.StatusGone || bytes.Contains(a.body, []byte("too old resource version"))
}

// Which version is the oldest is part of that.
var oldest = regexp.MustCompile(`(too old resource version: \d+) \(\d+\)`)

var versionOfBookmark = regexp.MustCompile(`"resourceVersion":"\d+"`)

// withoutBookmarks is what a watch told, but for bookmarks; of one that ends the
// initial events, all but its version, at which nothing is told.
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
