package hostile

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A canary is canaryMark and canaryID more characters. All are lower-case letters and
// digits, which URLs and JSON do not escape, and which labels and names may contain.
const (
	canaryMark = "tidingscanary"
	canaryID   = 12
)

// location is the object and the part of it that a canary is in.
type location struct {
	resource  resource
	namespace string
	name      string
	part      string // name, label, annotation, content
}

func (p location) String() string {
	return fmt.Sprintf("the %s of %s %s", p.part, p.resource.plural, strings.TrimPrefix(p.namespace+"/"+p.name, "/"))
}

// needle is the mark in one encoding. read decodes a text that begins with the needle.
type needle struct {
	text string
	read func(string) string
}

var (
	needles = makeNeedles()
	canary  = regexp.MustCompile(fmt.Sprintf("^%s[0-9a-f]{%d}", canaryMark, canaryID))
)

func makeNeedles() []needle {
	const whole = len(canaryMark) + canaryID
	out := []needle{{canaryMark, func(s string) string { return s }}}
	for shift := range 3 {
		// The first characters also depend on the text before the mark.
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + canaryMark))
		skip := []int{0, 2, 3}[shift]
		encoded = encoded[skip : len(encoded)-2]
		aligned := (4 - skip%4) % 4 // characters until the next group begins
		lost := (3 - shift) % 3     // bytes of the mark in these
		if shift == 0 {
			aligned, lost = 0, 0
		}
		out = append(out, needle{encoded, func(s string) string {
			if len(s) <= aligned {
				return ""
			}
			s = s[aligned:]
			s = s[:min(len(s), (whole+4)*4/3)]
			if end := strings.IndexFunc(s, notBase64); end >= 0 {
				s = s[:end]
			}
			for len(s) > 0 {
				if plain, err := base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(s)); err == nil {
					return canaryMark[:lost] + string(plain)
				}
				s = s[:len(s)-1]
			}
			return ""
		}})
	}
	each := func(format string) string {
		var b strings.Builder
		for _, c := range []byte(canaryMark) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	for _, format := range []string{"%02x", "%02X", "%%%02x", "%%%02X", `\u00%02x`, `\u00%02X`, `\x%02x`, "%%25%02x", "%%25%02X"} {
		in := strings.TrimSuffix(strings.TrimSuffix(strings.ReplaceAll(format, "%%", "%"), "%02x"), "%02X")
		out = append(out, needle{each(format), func(s string) string {
			s = s[:min(len(s), whole*(len(in)+2))]
			if in != "" {
				s = strings.ReplaceAll(s, in, "")
			}
			plain, _ := hex.DecodeString(s[:min(len(s), 2*whole)])
			return string(plain)
		}})
	}
	return out
}

func notBase64(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+/-_", r))
}

// canariesIn returns the canaries of a text, in any encoding, each once.
func canariesIn(text string) []string {
	found := map[string]bool{}
	for _, n := range needles {
		for rest := text; ; {
			at := strings.Index(rest, n.text)
			if at < 0 {
				break
			}
			if c := canary.FindString(n.read(rest[at:])); c != "" {
				found[c] = true
			}
			rest = rest[at+len(n.text):]
		}
	}
	out := make([]string, 0, len(found))
	for c := range found {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}
