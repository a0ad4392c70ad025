package hostile

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestCanariesAreFoundInEachEncoding(t *testing.T) {
	const canary = canaryMark + "0123456789ab"
	each := func(format string) (out string) {
		for _, c := range []byte(canary) {
			out += fmt.Sprintf(format, c)
		}
		return out
	}
	encodings := map[string]string{
		"plain":              canary,
		"path":               url.PathEscape(canary),
		"hex":                hex.EncodeToString([]byte(canary)),
		"upper-case hex":     strings.ToUpper(hex.EncodeToString([]byte(canary))),
		"percent":            each("%%%02x"),
		"upper-case percent": each("%%%02X"),
		"percent twice":      each("%%25%02x"),
		"JSON":               each(`\u00%02x`),
		"a string of Go":     each(`\x%02x`),
		"base64 in the end":  base64.StdEncoding.EncodeToString([]byte(canary)),
	}
	for before := range 7 {
		for after := range 4 {
			text := strings.Repeat("\xff", before) + canary + strings.Repeat("\xfe", after)
			encodings[fmt.Sprint("base64 std ", before, after)] = base64.StdEncoding.EncodeToString([]byte(text))
			encodings[fmt.Sprint("base64 url ", before, after)] = base64.RawURLEncoding.EncodeToString([]byte(text))
		}
	}
	for name, text := range encodings {
		if got := canariesIn("before " + text + `" after`); !slices.Equal(got, []string{canary}) {
			t.Errorf("%s: found %q in %s", name, got, text)
		}
	}
	if got := canariesIn(canaryMark + " and nothing more"); len(got) > 0 {
		t.Error(got)
	}
}

// The audit log may have names, but no content and no tokens.
func TestJudgeEvent(t *testing.T) {
	w := &world{canaries: map[string]location{
		canaryMark + "000000000001": {part: "content"}, canaryMark + "000000000002": {part: "name"},
	}}
	for line, says := range map[string]string{
		`{"objectRef":{"name":"` + canaryMark + `000000000002"}}`: "",
		`{"requestURI":"/?a=` + canaryMark + `000000000001"}`:     "the content of",
		`{"userAgent":"some-token"}`:                              "some-token",
		`{"userAgent":"`:                                          "not JSON",
		"{\"userAgent\":\"\u009b\"}":                              "not plain text",
	} {
		err := w.judgeEvent(line, []string{"some-token"})
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
