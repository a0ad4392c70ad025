package livetable

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
)

func FuzzCells(f *testing.F) {
	f.Add("web-1", "3 (", " ago)", int64(1_700_000_000), int64(3), 1.5, true)
	f.Add("", "", "", int64(-1), int64(math.MinInt64), math.Inf(1), false)
	f.Add("\x00\xff", strings.Repeat("ü", maxCell), "\u202e", int64(math.MaxInt32), int64(0), math.NaN(), true)
	f.Fuzz(func(t *testing.T, text, before, after string, since, number int64, float float64, flag bool) {
		r := &row{packed: pack([]any{text, nil, table.Elapsed{Since: time.Unix(since, 0), Before: before, After: after}, number, float, flag})}
		var got []cell
		for i, c := range r.cells {
			if i != len(got) || r.at(i) != c {
				t.Fatalf("cell %d of %q: %+v", i, r.packed, c)
			}
			if len(c.text) > maxCell+len("…") {
				t.Fatalf("a text of %d bytes", len(c.text))
			}
			if content, err := json.Marshal(c); err != nil || !json.Valid(content) || !utf8.Valid(content) {
				t.Fatalf("%+v: %s, %v", c, content, err)
			}
			got = append(got, c)
		}
		if len(got) != 6 || got[1].kind != null || got[2].since != since || got[3].kind != raw || len(text) <= maxCell && got[0].text != text {
			t.Fatalf("%+v", got)
		}
	})
}

func FuzzCompareNatural(f *testing.F) {
	f.Add("web-2", "web-10", "Web-2")
	f.Add("1/2", "01", "1")
	f.Add("", "0", "a")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ab, ba, bc, ac := compareNatural(a, b), compareNatural(b, a), compareNatural(b, c), compareNatural(a, c)
		if (ab < 0) != (ba > 0) || (ab == 0) != (ba == 0) {
			t.Errorf("%q and %q: %d and %d", a, b, ab, ba)
		}
		if ab <= 0 && bc <= 0 && ac > 0 {
			t.Errorf("%q, %q and %q are in a circle", a, b, c)
		}
	})
}

func TestNaturalOrder(t *testing.T) {
	want := []string{"", "0", "3 (", "10", "10/12", "a", "web-1", "Web-2", "web-10", "web-10a"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareNatural)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Whatever the path of a field is, it is refused or names a value of the object, and of a
// Secret none that is to be hidden.
func FuzzField(f *testing.F) {
	for _, seed := range []string{".spec.nodeName", ".metadata.labels['a.b/c']", ".a[*].b[0]", `.a[?(@.b=="c")].d`, "..", ".a\\.b", "['@this']", ".data.x", "[*][*]"} {
		f.Add(seed)
	}
	object := []byte(`{"type":"t","metadata":{"name":"n","annotations":{"last":"hidden"},"labels":{"a.b/c":"v"}},"data":{"x":"hidden"},"stringData":{"y":"hidden"},"a":[{"b":[1,2],"c":"d"}]}`)
	f.Fuzz(func(t *testing.T, path string) {
		field, ok := parseField(path)
		if !ok {
			return
		}
		text, _ := json.Marshal(field.value(object))
		if field.harmless() && strings.Contains(string(text), "hidden") {
			t.Fatalf("%s (%s) has %s", path, field.gjson, text)
		}
		_ = pack([]any{field.value(object)})
	})
}

func FuzzSortBytes(f *testing.F) {
	f.Add("pod-10", "pod-9")
	f.Add("a01", "A1")
	f.Add("1.10", "1.9x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if got, want := strings.Compare(sortBytes(a), sortBytes(b)), compareNatural(a, b); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
			t.Fatalf("%q, %q: %d, want %d", a, b, got, want)
		}
	})
}

func FuzzContains(f *testing.F) {
	f.Add("CrashLoopBackOff", "backoff")
	f.Add("ÄÖ İ", "i")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, text, word string) {
		word = strings.ToLower(word)
		if got, want := contains(text, word), strings.Contains(strings.ToLower(text), word); got != want {
			t.Fatalf("%q in %q: %t", word, text, got)
		}
	})
}
