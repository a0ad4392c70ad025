package codec

import (
	"unsafe"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
)

// Identity is what tells one version of one object from all others.
type Identity struct {
	Namespace, Name, UID, ResourceVersion string
}

// Field numbers of metav1.ObjectMeta, which is field 1 of every kind. See
// k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto.
const (
	fieldMetadata        protowire.Number = 1
	fieldName            protowire.Number = 1
	fieldNamespace       protowire.Number = 3
	fieldUID             protowire.Number = 5
	fieldResourceVersion protowire.Number = 6
)

// Peek reads the identity off the encoding of an object without decoding it.
// It reports false for what it cannot make sense of, which is then for Decode
// to judge. The strings are valid as long as raw is not changed.
func Peek(format Format, raw []byte) (Identity, bool) {
	var id Identity
	if format == Protobuf {
		id = peekProtobuf(raw)
	} else {
		id = peekJSON(raw)
	}
	return id, id.Name != "" && id.UID != "" && id.ResourceVersion != ""
}

func peekJSON(raw []byte) (id Identity) {
	gjson.Parse(view(raw)).Get("metadata").ForEach(func(key, value gjson.Result) bool {
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

func peekProtobuf(raw []byte) (id Identity) {
	fields(raw, func(number protowire.Number, metadata []byte) bool {
		if number != fieldMetadata {
			return true
		}
		fields(metadata, func(number protowire.Number, value []byte) bool {
			switch number {
			case fieldName:
				id.Name = view(value)
			case fieldNamespace:
				id.Namespace = view(value)
			case fieldUID:
				id.UID = view(value)
			case fieldResourceVersion:
				id.ResourceVersion = view(value)
				return false // what follows is of no interest
			}
			return true
		})
		return false
	})
	return id
}

// fields calls visit for each length-delimited field of a message until it
// returns false or the message makes no sense.
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

// view is the string that b is for now.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
