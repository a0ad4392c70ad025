package codec

import (
	"bytes"
	"slices"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
)

const fieldManagedFields protowire.Number = 17 // of metav1.ObjectMeta

// withoutManagedFields cuts metadata.managedFields out of the encoding of an object,
// so that they are never decoded. It returns raw itself, or the rest appended to dst.
// It returns raw if it does not understand the encoding.
func withoutManagedFields(dst []byte, format Format, raw []byte) []byte {
	if format == Protobuf {
		return cutProtobuf(dst, raw)
	}
	return cutJSON(dst, raw)
}

func cutProtobuf(dst, raw []byte) []byte {
	number, kind, tag := protowire.ConsumeTag(raw)
	if number != fieldMetadata || kind != protowire.BytesType {
		return raw // Kubernetes writes metadata first
	}
	metadata, n := protowire.ConsumeBytes(raw[tag:])
	if n < 0 {
		return raw
	}
	cut := 0
	for rest := metadata; len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return raw
		}
		if number == fieldManagedFields {
			cut += size
		}
		rest = rest[size:]
	}
	if cut == 0 {
		return raw
	}
	out := slices.Grow(dst, len(raw)-cut)
	out = protowire.AppendTag(out, fieldMetadata, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(len(metadata)-cut))
	for rest := metadata; len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if number != fieldManagedFields {
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	return append(out, raw[tag+n:]...)
}

func cutJSON(dst, raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`"managedFields"`)) {
		return raw
	}
	from, to := -1, -1
	metadata := gjson.Get(stringOf(raw), "metadata")
	if !metadata.IsObject() || metadata.Index == 0 {
		return raw
	}
	metadata.ForEach(func(key, value gjson.Result) bool {
		if key.Raw != `"managedFields"` {
			return true
		}
		from, to = key.Index, value.Index+len(value.Raw)
		return false
	})
	if from < 0 || to > len(raw) || to <= from || !bytes.HasPrefix(raw[from:], []byte(`"managedFields"`)) {
		return raw
	}
	// Also cut one of the commas around it.
	before, after := bytes.TrimRight(raw[:from], " \t\r\n"), bytes.TrimLeft(raw[to:], " \t\r\n")
	switch {
	case bytes.HasPrefix(after, []byte(",")):
		after = after[1:]
	case bytes.HasSuffix(before, []byte(",")):
		before = before[:len(before)-1]
	}
	return append(append(dst, before...), after...)
}
