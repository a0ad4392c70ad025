package codec

import (
	"bytes"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
)

const fieldManagedFields protowire.Number = 17 // of metav1.ObjectMeta

// withoutManagedFields returns the encoding of an object with
// metadata.managedFields cut out, so that nothing is allocated for what would be
// thrown away. What it cannot make sense of it returns as it is.
func withoutManagedFields(format Format, raw []byte) []byte {
	if format == Protobuf {
		return cutProtobuf(raw)
	}
	return cutJSON(raw)
}

func cutProtobuf(raw []byte) []byte {
	number, kind, tag := protowire.ConsumeTag(raw)
	if number != fieldMetadata || kind != protowire.BytesType {
		return raw // metadata comes first in what Kubernetes writes
	}
	metadata, n := protowire.ConsumeBytes(raw[tag:])
	if n < 0 {
		return raw
	}
	kept := make([]byte, 0, len(raw))
	for rest := metadata; len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return raw
		}
		if number != fieldManagedFields {
			kept = append(kept, rest[:size]...)
		}
		rest = rest[size:]
	}
	if len(kept) == len(metadata) {
		return raw
	}
	out := make([]byte, 0, len(raw)-len(metadata)+len(kept))
	out = protowire.AppendTag(out, fieldMetadata, protowire.BytesType)
	out = protowire.AppendBytes(out, kept)
	return append(out, raw[tag+n:]...)
}

func cutJSON(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`"managedFields"`)) {
		return raw
	}
	from, to := -1, -1
	metadata := gjson.ParseBytes(raw).Get("metadata")
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
	// One of the commas around it goes, too.
	before, after := bytes.TrimRight(raw[:from], " \t\r\n"), bytes.TrimLeft(raw[to:], " \t\r\n")
	switch {
	case bytes.HasPrefix(after, []byte(",")):
		after = after[1:]
	case bytes.HasSuffix(before, []byte(",")):
		before = before[:len(before)-1]
	}
	return append(append(make([]byte, 0, len(before)+len(after)), before...), after...)
}
