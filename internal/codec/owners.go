package codec

import (
	"encoding/binary"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/object"
)

// Field numbers of metav1.ObjectMeta and metav1.OwnerReference.
const (
	fieldOwnerReferences protowire.Number = 13
	fieldOwnerUID        protowire.Number = 4
)

// visitOwners calls visit with the uid of each owner of an object, until it returns
// false. The uid is only valid during the call.
func visitOwners(format Format, content []byte, visit func(uid string) bool) {
	if format == JSON {
		gjson.Get(stringOf(content), "metadata.ownerReferences").ForEach(func(_, owner gjson.Result) bool {
			uid := owner.Get("uid").Str
			return uid == "" || visit(uid)
		})
		return
	}
	fields(content, func(number protowire.Number, metadata []byte) bool {
		if number != fieldMetadata {
			return true
		}
		fields(metadata, func(number protowire.Number, owner []byte) bool {
			goOn := true
			if number == fieldOwnerReferences {
				fields(owner, func(number protowire.Number, uid []byte) bool {
					if number == fieldOwnerUID && len(uid) > 0 {
						goOn = visit(stringOf(uid))
					}
					return true
				})
			}
			return goOn
		})
		return false
	})
}

// hashOwners returns the hashes of the uids of an object's owners.
func hashOwners(format Format, content []byte) (hashes []uint64) {
	visitOwners(format, content, func(uid string) bool {
		hashes = append(hashes, object.OwnerHash(uid))
		return true
	})
	return hashes
}

// ownerReferences reads the references to an object's owners, and keeps the hashes of
// their uids.
func (s *skimmer) ownerReferences() bool {
	if !s.skip('[') {
		return s.value(2)
	}
	if s.skip(']') {
		return true
	}
	for s.members(3, s.ownerReference) {
		if !s.skip(',') {
			return s.skip(']')
		}
	}
	return false
}

func (s *skimmer) ownerReference(name string) bool {
	if name != "uid" {
		return s.value(4)
	}
	uid, ok := s.plainText()
	if ok && uid != "" {
		s.hashes = append(s.hashes, object.OwnerHash(uid))
	}
	return ok
}

// HasOwner reports whether the object names an owner with the given uid. It decodes the
// object's metadata.
func (r *Raw) HasOwner(uid types.UID) (found bool) {
	r.visit(func(format Format, content []byte) {
		visitOwners(format, content, func(have string) bool {
			found = have == string(uid)
			return !found
		})
	})
	return found
}

// AppendOwners appends to dst the hash of the uid of each owner, see
// [object.OwnerHash], if the object was decoded with [Options.Owners]. It decodes
// nothing.
func (r *Raw) AppendOwners(dst []uint64) []uint64 {
	if r.encoding.owned != nil {
		return dst
	}
	text := r.text[r.ends[3]:]
	for i := range countHashes(text) {
		at := hashesLen(i)
		dst = append(dst, binary.LittleEndian.Uint64([]byte(text[at:at+8])))
	}
	return dst
}

// Hashes are kept as their number in two bytes, and eight bytes for each.

const maxHashes = 1<<16 - 1

func hashesLen(n int) int { return 2 + 8*n }

func countHashes(text string) int { return int(text[0]) | int(text[1])<<8 }

func appendHashes(dst []byte, hashes []uint64) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(hashes)))
	for _, hash := range hashes {
		dst = binary.LittleEndian.AppendUint64(dst, hash)
	}
	return dst
}
