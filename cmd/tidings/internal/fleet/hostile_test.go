package fleet

import (
	"bytes"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func FuzzMessage(f *testing.F) {
	f.Add("tidings.log.prod.changes.core.v1.pods._all", "e-1", "1-2", "", "x")
	f.Add("tidings.log.prod.snapshot.apps.v1.deployments.shop", "e-18446744073709551615", "", "1", "")
	f.Add("tidings.log.prod.beat", "e-99999999999999999999", "-", "1", "{}")
	f.Add("tidings.log.prod.changes.core.v1.*.>", "-", "1", "", "")
	f.Fuzz(func(t *testing.T, subject, id, versions, more, payload string) {
		header := nats.Header{jetstream.MsgIDHeader: {id}, versionsHeader: {versions}, moreHeader: {more}}
		m, err := parseMessage("prod", subject, header, []byte(payload), 1)
		if err != nil {
			return
		}
		if m.id() != id && !strings.Contains(id, "-0") && !strings.Contains(id, "-+") {
			t.Errorf("the id %q is read as %q", id, m.id())
		}
		if (m.kind == kindChanges || m.kind == kindSnapshot) && !m.feed.valid() {
			t.Errorf("the resource of %q is %+v", subject, m.feed)
		}
	})
}

func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"epoch":"e","number":3,"sequence":7,"id":"e-3","slot":"a","pieces":1,"bytes":10,"objects":1,"resourceVersion":"5"}`))
	f.Add([]byte(`{"epoch":"e","number":3,"id":"e-3","slot":"*","pieces":1000000000,"resourceVersion":"-5"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var h head
		if parseHead(text, &h) == nil && (h.Pieces < 1 || h.Pieces > maxPieces || h.Slot != "a" && h.Slot != "b" || strings.ContainsAny(h.ResourceVersion, "+- ")) {
			t.Errorf("%s is read as %+v", text, h)
		}
	})
}

func FuzzClusterToken(f *testing.F) {
	f.Add("prod", "=2E")
	f.Add("a.b*c >", "==")
	f.Fuzz(func(t *testing.T, name, escaped string) {
		if back, ok := fromToken(token(name)); name != "" && (!ok || back != name) {
			t.Errorf("%q becomes %q", name, back)
		}
		if cluster, ok := fromToken(escaped); ok && token(cluster) != escaped {
			t.Errorf("%q is read as %q", escaped, cluster)
		}
	})
}

// bomb is a few kilobytes that are expanded to a size.
func bomb(t *testing.T, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		_, _ = w.Write(zeros)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestBombs(t *testing.T) {
	packed := bomb(t, 2*maxDecoded)
	if _, err := decoder.DecodeAll(packed, nil); err == nil {
		t.Error("a message is expanded without bound")
	}
	pieces := &pieceReader{ctx: t.Context(), cancel: func() {}, next: make(chan piece, 1)}
	pieces.next <- piece{data: packed}
	close(pieces.next)
	spoilt := false
	unpacked, _ := zstd.NewReader(pieces, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	body := &snapshotBody{Decoder: unpacked, pieces: pieces, what: "the snapshot", spoilt: func() { spoilt = true }}
	defer body.Close()
	buf, read := make([]byte, 1<<20), 0
	for {
		n, err := body.Read(buf)
		read += n
		if err != nil {
			break
		}
	}
	if !spoilt || read > freeExpansion+maxExpansion*len(packed)+len(buf) {
		t.Errorf("%d bytes of a snapshot of %d bytes were read (spoilt: %v)", read, len(packed), spoilt)
	}
}

// A snapshot is newer than the position from which it is continued: what it has is left out.
func TestWatchLeavesOutWhatTheSnapshotHas(t *testing.T) {
	event := func(version string) string {
		return `{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"` + version + `"}}}` + "\n"
	}
	payload := encoder.EncodeAll([]byte(event("4")+event("5")+event("6")), nil)
	b := &watchBody{feed: &followed{}, after: 5, version: 5}
	m := message{position: position{"e", 2, 2}, kind: kindChanges, first: 4, last: 6, payload: payload}
	if err := b.take(m); err != nil || string(b.rest) != event("6") {
		t.Errorf("got %q, %v", b.rest, err)
	}
}
