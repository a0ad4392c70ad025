package kubeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// nasty are strings that YAML or JSON treat specially.
var nasty = []string{
	"", " ", "~", "null", "true", "no", "y", "0", "-1", "1e3", "0x1f", "0o7", "1_000", "12:30:45", "2020-01-02", "2020-01-02T03:04:05Z", ".inf", "=", "<<", "- a", "? a", "a: b", "a #b", "#a", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a",
	"{}", "[]", "items: []", "\nitems: []\n", "\n  \"items\": []", "\"items\": []", "rows: []", "---", "...", "\n---\n", "a\n...\nb",
	" leading", "trailing ", "tab\tbed", "\ttab", "two\nlines", "two\nlines\n", "\n", "\n\n", " \n x\n", "a\r\nb", "quote\"", "quote'", `back\slash`, "<a>&", "é", "日本語の文字列", "🙂", "\u00a0", "\u0085", "\u2028", "\ufeff", "\x7f", "\u0080", "\x00", "\x1b[0m", "\uffff",
	strings.Repeat("word ", 60), strings.Repeat("longword", 60), strings.Repeat("line\n", 20), strings.Repeat("日本 ", 60), strings.Repeat("k", 1100),
}

func drawText(t *rapid.T) string {
	return rapid.OneOf(rapid.SampledFrom(nasty), rapid.StringMatching(`[a-z]{1,8}`), rapid.String(), rapid.Map(rapid.SliceOfN(rapid.SampledFrom(nasty), 2, 3), func(parts []string) string { return strings.Join(parts, "") })).Draw(t, "text")
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 9
	if depth == 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return json.Number(rapid.SampledFrom([]string{"0", "-0", "1.0", "1.50", "1e3", "1E-7", "18446744073709551615", "123456789012345678901234567890", "0.1", "1e400"}).Draw(t, "number"))
	case 7:
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return drawValue(t, depth-1) }), 0, 4).Draw(t, "list")
	case 8:
		return drawObject(t, depth-1)
	}
	return drawText(t)
}

func drawObject(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		out[drawText(t)] = drawValue(t, depth)
	}
	return out
}

// writeJSON returns JSON as an API server writes it. html is true for Go types.
func writeJSON(t *rapid.T, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(rapid.Bool().Draw(t, "html"))
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), newline)
}

// A list that is sent item by item is the same as one that is converted as a whole,
// whatever its content. surelyYAML is false for items that cannot be converted.
func TestLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items [][]byte
		for range rapid.IntRange(1, 4).Draw(t, "items") {
			items = append(items, writeJSON(t, drawObject(t, 4)))
		}
		field := rapid.SampledFrom([]string{"items", "rows"}).Draw(t, "field")
		head := fmt.Appendf(nil, `{"kind":"L","apiVersion":"v1","metadata":%s,"columnDefinitions":%s,%q:[`, writeJSON(t, map[string]string{"resourceVersion": "7"}), writeJSON(t, []string{"a: b", "\nrows: []\n", "\n  \"rows\": []"}), field)
		tail := []byte("]}\n")
		if rapid.Bool().Draw(t, "custom") {
			head, tail = fmt.Appendf(nil, `{"apiVersion":"v1",%q:[`, field), []byte(`],"kind":"L","metadata":{"continue":"","resourceVersion":"7"}}`+"\n")
		}
		whole := slices.Concat(head, bytes.Join(items, comma), bytes.TrimSuffix(tail, newline))
		for _, f := range []form{{}, {pretty: true}, {media: asYAML}} {
			want, wrong := f.finish(bytes.Clone(whole))
			l, err := f.layout(field, bytes.Clone(head), bytes.Clone(tail))
			if err != nil {
				t.Fatal(err)
			}
			out := bytes.Clone(l.head)
			for i, item := range items {
				if i > 0 {
					out = append(out, l.comma...)
				}
				if l.item != nil {
					sure := surelyYAML(item)
					if item, err = l.item(item); err != nil {
						if wrong == nil || sure {
							t.Fatalf("%v, as a whole %v; sure: %v\n%s", err, wrong, sure, items[i])
						}
						break
					}
				}
				out = append(out, item...)
			}
			if wrong != nil {
				if err == nil {
					t.Fatalf("only as a whole: %v", wrong)
				}
				continue
			}
			if out = append(out, l.tail...); !bytes.Equal(out, want) {
				t.Fatalf("%+v\nwant %q\nhave %q", f, want, out)
			}
		}
	})
}

// surelyYAML is false for JSON that an API server does not write.
func FuzzSurelyYAML(f *testing.F) {
	for _, s := range nasty {
		b, _ := json.Marshal(map[string]any{s: s})
		f.Add(b)
	}
	f.Add([]byte(`{"a":"\ud83d\ude00"}`))
	f.Add([]byte(`{"a":` + strings.Repeat("[", 1200) + strings.Repeat("]", 1200) + `}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) || len(b) == 0 || b[0] != '{' || !surelyYAML(b) {
			return
		}
		if _, err := yaml.JSONToYAML(b); err != nil {
			t.Errorf("%v: %q", err, b)
		}
	})
}
