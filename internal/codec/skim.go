package codec

import (
	"strings"

	"github.com/tidings-io/tidings/internal/object"
)

// skimmer reads the JSON of objects in one pass, as API servers write it: without
// white space, and with whole numbers. It checks all that it reads, and stops at
// anything else, valid or not: the caller then uses a complete parser. Most of the work
// of a mirror's first list is done here.
type skimmer struct {
	json []byte
	at   int
	// owners asks for the hashes of the owners' uids.
	owners bool
	hashes []uint64
}

// whole reads an object, and returns its identity and whether it has a kind and an
// apiVersion. It returns false if it has stopped before the end, or if the object has
// only one of them.
func (s *skimmer) whole() (id object.Identity, typed, ok bool) {
	kind, apiVersion := false, false
	ok = s.members(0, func(name string) bool {
		switch name {
		case "metadata":
			return s.members(1, func(name string) bool { return s.metadata(name, &id) })
		case "kind":
			kind = true
			return s.name()
		case "apiVersion":
			apiVersion = true
			return s.name()
		}
		return s.value(1)
	})
	return id, kind, ok && kind == apiVersion && s.at == len(s.json)
}

// peek reads an object until its identity is known. It expects the namespace, if there
// is one, before the resourceVersion or the uid, as API servers write it.
func (s *skimmer) peek() (id object.Identity, known bool) {
	s.members(0, func(name string) bool {
		if name != "metadata" {
			return s.value(1)
		}
		return s.members(1, func(name string) bool {
			ok := s.metadata(name, &id)
			known = ok && id.Name != "" && id.UID != "" && id.ResourceVersion != ""
			return ok && !known
		})
	})
	return id, known
}

// metadata reads the value of a field of the metadata.
func (s *skimmer) metadata(key string, id *object.Identity) (ok bool) {
	switch key {
	case "namespace":
		id.Namespace, ok = s.plainText()
	case "name":
		id.Name, ok = s.plainText()
	case "uid":
		id.UID, ok = s.plainText()
	case "resourceVersion":
		id.ResourceVersion, ok = s.plainText()
	case "labels":
		return s.members(2, func(string) bool { _, ok := s.text(); return ok })
	case "ownerReferences":
		if s.owners {
			return s.ownerReferences()
		}
		return s.value(2)
	default:
		return s.value(2)
	}
	return ok
}

// name reads a string that is not empty.
func (s *skimmer) name() bool {
	name, ok := s.plainText()
	return ok && name != ""
}

// value reads any value.
func (s *skimmer) value(depth int) bool {
	if s.at == len(s.json) || depth > maxDepth {
		return false
	}
	switch s.json[s.at] {
	case '"':
		_, ok := s.text()
		return ok
	case '{':
		return s.members(depth, nil)
	case '[':
		s.at++
		if s.skip(']') {
			return true
		}
		for s.value(depth + 1) {
			if !s.skip(',') {
				return s.skip(']')
			}
		}
		return false
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.integer()
}

// members reads an object. value reads the value of a member; nil reads any. With value,
// a name must not have escapes, because it could be any name then.
func (s *skimmer) members(depth int, value func(name string) bool) bool {
	if depth >= maxDepth || !s.skip('{') {
		return false
	}
	if s.skip('}') {
		return true
	}
	for {
		if value == nil {
			if _, ok := s.text(); !ok || !s.skip(':') || !s.value(depth+1) {
				return false
			}
		} else if name, ok := s.plainText(); !ok || !s.skip(':') || !value(name) {
			return false
		}
		if !s.skip(',') {
			return s.skip('}')
		}
	}
}

func (s *skimmer) skip(c byte) bool {
	if s.at < len(s.json) && s.json[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *skimmer) word(w string) bool {
	if end := s.at + len(w); end <= len(s.json) && string(s.json[s.at:end]) == w {
		s.at = end
		return true
	}
	return false
}

// integer reads a whole number of at most 18 digits, see [plainJSON].
func (s *skimmer) integer() bool {
	s.skip('-')
	begin := s.at
	for s.at < len(s.json) && s.json[s.at]-'0' < 10 {
		s.at++
	}
	digits := s.at - begin
	return digits == 1 || digits > 1 && digits <= 18 && s.json[begin] != '0'
}

// plainText reads a string without escapes, and returns what is between its quotes.
func (s *skimmer) plainText() (string, bool) {
	begin := s.at + 1
	escaped, ok := s.text()
	if !ok || escaped {
		return "", false
	}
	return stringOf(s.json[begin : s.at-1]), true
}

// inText has the bytes that a string in JSON may have as they are.
var inText = func() (in [256]bool) {
	for c := 0x20; c < len(in); c++ {
		in[c] = c != '"' && c != '\\'
	}
	return in
}()

// text reads a string.
func (s *skimmer) text() (escaped, ok bool) {
	if !s.skip('"') {
		return false, false
	}
	for b := s.json; ; {
		at := s.at
		for at < len(b) && inText[b[at]] {
			at++
		}
		switch s.at = at; {
		case s.skip('"'):
			return escaped, true
		case s.skip('\\') && s.at < len(b) && strings.IndexByte(`"\/bfnrt`, b[s.at]) >= 0:
			escaped = true
			s.at++
		case at < len(b) && b[at] == '\\' && s.codePoint():
			escaped = true
		default:
			return escaped, false
		}
	}
}

// codePoint reads the rest of an escape with four hexadecimal digits.
func (s *skimmer) codePoint() bool {
	if !s.skip('u') {
		return false
	}
	for range 4 {
		if s.at == len(s.json) || strings.IndexByte("0123456789abcdefABCDEF", s.json[s.at]) < 0 {
			return false
		}
		s.at++
	}
	return true
}
