package codec_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/internal/codec"
)

// bombs are small inputs that could exhaust a stack or memory.
func bombs() map[string][]byte {
	const n = 1 << 20
	var labels strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&labels, `"l%d":"",`, i)
	}
	about := func(field, value string) []byte {
		return fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a",%q:%s}}`, field, value)
	}
	return map[string][]byte{
		"nothing but brackets":   bytes.Repeat([]byte("["), n),
		"nested lists":           about("x", strings.Repeat("[", n)+strings.Repeat("]", n)),
		"nested objects":         about("x", strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)),
		"nested, not closed":     about("x", strings.Repeat(`{"a":[`, n)),
		"nested managed fields":  about("managedFields", `[{"fieldsV1":`+strings.Repeat(`{"f:a":`, n)+"{}"+strings.Repeat("}", n)+"}]"),
		"fairly nested":          about("x", strings.Repeat("[", 9000)+strings.Repeat("]", 9000)),
		"labels":                 about("labels", "{"+strings.TrimSuffix(labels.String(), ",")+"}"),
		"annotation":             about("annotations", `{"a":"`+strings.Repeat("x", n)+`"}`),
		"escapes":                about("annotations", `{"a":"`+strings.Repeat(`\u0000`, n/6)+`"}`),
		"the same key":           about("labels", "{"+strings.Repeat(`"a":"b",`, 100_000)+`"a":"c"}`),
		"a long number":          about("generation", strings.Repeat("9", n)),
		"a great number":         about("generation", "1e999999999"),
		"invalid UTF-8":          about("annotations", "{\"a\":\""+strings.Repeat("\xff", n/4)+"\"}"),
		"finalizers":             about("finalizers", "["+strings.Repeat(`"",`, 200_000)+`""]`),
		"owners":                 about("ownerReferences", "["+strings.Repeat(`{},`, 100_000)+`{}]`),
		"blanks":                 append(bytes.Repeat([]byte(" "), n), '{', '}'),
		"protobuf: groups":       bytes.Repeat([]byte{0x0b}, n),
		"protobuf: a length":     {0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"protobuf: empty fields": bytes.Repeat([]byte{0x0a, 0x00}, n/2),
		"protobuf: metadata":     append([]byte{0x0a, 0x80, 0x80, 0x40}, bytes.Repeat([]byte{0x5a, 0x00}, n/2)...), // labels without a key
	}
}

// The memory for an object is bounded by its size, and no object crashes the process.
func TestBombs(t *testing.T) {
	for name, bomb := range bombs() {
		for _, format := range []codec.Format{codec.JSON, codec.Protobuf} {
			costs(t, name, bomb, func() { _, _ = decode[*codec.Raw](t, codec.Options{}, format, bomb) })
			costs(t, name, bomb, func() { _, _ = decode[*unstructured.Unstructured](t, codec.Options{}, format, bomb) })
			costs(t, name, bomb, func() { _, _ = decode[*corev1.ConfigMap](t, codec.Options{}, format, bomb) })
			costs(t, name, bomb, func() { _, _ = decode[*metav1.PartialObjectMetadata](t, codec.Options{}, format, bomb) })
			costs(t, name, bomb, func() {
				_, _ = decode[*unstructured.Unstructured](t, codec.Options{KeepManagedFields: true}, format, bomb)
			})
		}
	}
}

// costs fails the test if f allocates too much for the size of an input.
func costs(t *testing.T, name string, input []byte, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	// An empty element of a list, two bytes and a comma, is a struct of a hundred.
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(200*len(input)+4<<20); got > most {
		t.Errorf("%s: %d bytes make it allocate %d, more than %d", name, len(input), got, most)
	}
}
