package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// NewEvent returns an event of level Metadata for a request that was received at a
// time, with an ID of its own.
func NewEvent(received time.Time) *auditv1.Event {
	return &auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    auditv1.LevelMetadata, AuditID: uuid.NewUUID(), RequestReceivedTimestamp: metav1.NewMicroTime(received),
	}
}

// truncated ends a text that was cut, as in kube-apiserver.
const truncated = "...TRUNCATED"

// Bounded returns a text of max bytes at most, and truncated.
func Bounded(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for max > 0 && !utf8.RuneStart(text[max]) {
		max--
	}
	return strings.Clone(text[:max]) + truncated // the rest is not kept in memory
}

// encode returns the line of an event. It is plain ASCII, so that nothing that a client
// sends ends the line, or is obeyed by a terminal.
func encode(e *auditv1.Event) []byte {
	body, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Errorf("encode an audit event: %w", err)) // cannot happen: all of its fields can be encoded
	}
	return append(ascii(body), '\n')
}

// ascii escapes what is not printable ASCII. In JSON that occurs in strings only.
func ascii(body []byte) []byte {
	plain := func(r rune) bool { return r >= ' ' && r < 0x7f }
	clean := true
	for _, b := range body {
		clean = clean && plain(rune(b))
	}
	if clean {
		return body
	}
	out := make([]byte, 0, len(body)+16)
	for _, r := range string(body) {
		switch {
		case plain(r):
			out = append(out, byte(r))
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}
