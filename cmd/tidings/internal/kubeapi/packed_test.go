package kubeapi

import (
	"bytes"
	"io"
	"testing"

	"compress/gzip" // another implementation than the one that has written it

	"pgregory.net/rapid"
)

// TestPacked reads back answers with packed content between a head and a tail, with their
// checksums if they are compressed.
func TestPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := packer{from: rapid.IntRange(0, 5000).Draw(t, "compressed from")}
		var middle []byte
		for range rapid.IntRange(0, 5).Draw(t, "parts") {
			part := bytes.Repeat([]byte(rapid.String().Draw(t, "text")), rapid.IntRange(0, 2000).Draw(t, "times"))
			if err := p.add(part); err != nil {
				t.Fatal(err)
			}
			middle = append(middle, part...)
		}
		kept, err := p.done()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // it is used more than once
			head, tail := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "head"), rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "tail")
			var out bytes.Buffer
			length, parts := kept.within(head, tail)
			for _, part := range parts {
				out.Write(part)
			}
			if out.Len() != length {
				t.Fatalf("there are %d bytes, not the %d that were announced", out.Len(), length)
			}
			var r io.Reader = &out
			if kept.deflated != (len(middle) > p.from) {
				t.Fatalf("%d bytes are compressed: %v, which was to be from %d on", len(middle), kept.deflated, p.from)
			}
			if kept.deflated {
				if r, err = gzip.NewReader(&out); err != nil {
					t.Fatal(err)
				}
			}
			got, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if want := append(append(bytes.Clone(head), middle...), tail...); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes came back, not the %d that were written", len(got), len(want))
			}
		}
	})
}
