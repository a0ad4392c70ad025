package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ChangeType says what happened to an object.
type ChangeType uint8

// The types of changes.
const (
	Added   ChangeType = 1
	Updated ChangeType = 2
	Deleted ChangeType = 3

	// held is a version in a checkpoint: the object existed and did not change.
	held ChangeType = 4
)

func (t ChangeType) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Updated:
		return "MODIFIED"
	case Deleted:
		return "DELETED"
	case held:
		return "HELD"
	}
	return fmt.Sprintf("ChangeType(%d)", uint8(t))
}

// Version is one version of an object.
type Version struct {
	// Seq is the place of the change in its series. A version in a checkpoint has the
	// sequence number at which its window begins.
	Seq  uint64
	Type ChangeType
	// Key is namespace/name, or the name of an object that is not namespaced.
	Key string
	UID string
	// ResourceVersion of the object. For a deletion it is the version of the deletion,
	// or, if it was found by a relist, that of the list.
	ResourceVersion uint64
	// Time is when the change arrived at the mirror.
	Time time.Time
	// Writers are the entries of the object's managedFields that this version changed,
	// as JSON, without their fields. It may be empty.
	Writers []byte
	// Object is the object's JSON without managedFields; for a deletion, its last state.
	Object []byte
	// Managed is the part of the JSON that was left out, and ManagedAt its offset. They
	// are kept of the newest version only, for [Series.Newest].
	Managed   []byte
	ManagedAt int
}

var errDamaged = errors.New("a record is damaged")

// appendVersion encodes everything but Seq and Key, which are in the database's key.
func appendVersion(b []byte, v Version) []byte {
	b = append(b, byte(v.Type))
	b = binary.AppendUvarint(b, uint64(v.Time.UnixNano()))
	b = binary.AppendUvarint(b, v.ResourceVersion)
	b = appendBytes(b, v.UID)
	b = appendBytes(b, v.Writers)
	return append(b, v.Object...)
}

// parseVersion decodes what appendVersion has encoded. The result refers to b.
func parseVersion(b []byte) (v Version, err error) {
	r := reader{b}
	v.Type = ChangeType(r.byte())
	v.Time = time.Unix(0, int64(r.uvarint())).UTC()
	v.ResourceVersion = r.uvarint()
	v.UID = string(r.bytes())
	v.Writers = r.bytes()
	v.Object = r.rest
	if r.rest == nil || v.Type < Added || v.Type > held {
		return Version{}, errDamaged
	}
	return v, nil
}

// batch is a record of the log.
type batch struct {
	first  uint64 // the sequence number of the first change; in the key
	time   time.Time
	end    uint64 // the resourceVersion of the series after the batch
	relist bool   // the changes were found by a list, and are meaningful only together
	count  uint64 // of events
	events []logEvent
}

type logEvent struct {
	typ             ChangeType
	resourceVersion uint64
	key             string
}

func (b batch) last() uint64 { return b.first + b.count - 1 }

func appendBatch(out []byte, b batch) []byte {
	relist := byte(0)
	if b.relist {
		relist = 1
	}
	out = append(out, relist)
	out = binary.AppendUvarint(out, uint64(b.time.UnixNano()))
	out = binary.AppendUvarint(out, b.end)
	out = binary.AppendUvarint(out, uint64(len(b.events)))
	for _, e := range b.events {
		out = append(out, byte(e.typ))
		out = binary.AppendVarint(out, int64(e.resourceVersion-b.end))
		out = appendBytes(out, e.key)
	}
	return out
}

// parseBatch decodes what appendBatch has encoded. It leaves out the events if head is
// true.
func parseBatch(raw []byte, head bool) (b batch, err error) {
	r := reader{raw}
	b.relist = r.byte() == 1
	b.time = time.Unix(0, int64(r.uvarint())).UTC()
	b.end = r.uvarint()
	b.count = r.uvarint()
	if r.rest == nil || b.count == 0 || b.count > uint64(len(raw)) {
		return batch{}, errDamaged
	}
	if head {
		return b, nil
	}
	b.events = make([]logEvent, 0, b.count)
	for range b.count {
		e := logEvent{typ: ChangeType(r.byte()), resourceVersion: b.end + uint64(r.varint()), key: string(r.bytes())}
		if r.rest == nil {
			return batch{}, errDamaged
		}
		b.events = append(b.events, e)
	}
	return b, nil
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader decodes a record. Its rest is nil after an error.
type reader struct{ rest []byte }

func (r *reader) byte() (b byte) {
	if len(r.rest) == 0 {
		r.rest = nil
		return 0
	}
	b, r.rest = r.rest[0], r.rest[1:]
	return b
}

func (r *reader) uvarint() uint64 {
	x, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest = nil
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

func (r *reader) varint() int64 {
	x, n := binary.Varint(r.rest)
	if n <= 0 {
		r.rest = nil
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if r.rest == nil || n > uint64(len(r.rest)) {
		r.rest = nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
