package codec

import (
	"unsafe"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidings-io/tidings/internal/object"
)

// Field numbers of metav1.ObjectMeta, which is field 1 of every kind. See
// k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto.
const (
	fieldMetadata        protowire.Number = 1
	fieldName            protowire.Number = 1
	fieldNamespace       protowire.Number = 3
	fieldUID             protowire.Number = 5
	fieldResourceVersion protowire.Number = 6
)

// Peek returns the identity in the encoding of an object, without decoding it. It
// returns false if it does not understand the encoding or the identity is incomplete.
// The strings point into raw.
func Peek(format Format, raw []byte) (object.Identity, bool) {
	var id object.Identity
	if format == Protobuf {
		id = peekProtobuf(raw)
	} else {
		id = peekJSON(raw)
	}
	return id, id.Name != "" && id.UID != "" && id.ResourceVersion != ""
}

func peekJSON(raw []byte) (id object.Identity) {
	skim := skimmer{json: raw}
	if id, ok := skim.peek(); ok {
		return id
	}
	gjson.Parse(stringOf(raw)).Get("metadata").ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "name":
			id.Name = value.Str
		case "namespace":
			id.Namespace = value.Str
		case "uid":
			id.UID = value.Str
		case "resourceVersion":
			id.ResourceVersion = value.Str
		}
		return true
	})
	return id
}

func peekProtobuf(raw []byte) (id object.Identity) {
	fields(raw, func(number protowire.Number, metadata []byte) bool {
		if number != fieldMetadata {
			return true
		}
		fields(metadata, func(number protowire.Number, value []byte) bool {
			switch number {
			case fieldName:
				id.Name = stringOf(value)
			case fieldNamespace:
				id.Namespace = stringOf(value)
			case fieldUID:
				id.UID = stringOf(value)
			case fieldResourceVersion:
				id.ResourceVersion = stringOf(value)
				return false // the fields after it are not needed
			}
			return true
		})
		return false
	})
	return id
}

// fields calls visit for each length-delimited field of a message, until visit
// returns false or the message is invalid.
func fields(message []byte, visit func(protowire.Number, []byte) bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 || !visit(number, value) {
			return
		}
		message = message[n:]
	}
}

// stringOf returns a string that shares the memory of b.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
