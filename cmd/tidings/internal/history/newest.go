package history

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Versions have no managedFields. The record of an object's newest version has them, so
// that the object can be restored as the API server sent it. If the newest version was
// thinned, the record has the whole object.

// appendNewest encodes the record of an object's newest version.
func appendNewest(b []byte, v Version, whole bool) []byte {
	if whole {
		b = binary.AppendUvarint(append(b, 1), v.ResourceVersion)
		return append(b, v.Object...)
	}
	b = binary.AppendUvarint(append(b, 0), v.ResourceVersion)
	b = binary.AppendUvarint(b, uint64(v.ManagedAt))
	return append(b, v.Managed...)
}

// restore appends to dst the whole JSON of an object, of its newest version and record.
func restore(dst []byte, v Version, record []byte) ([]byte, error) {
	r := reader{record}
	whole := r.byte() == 1
	version := r.uvarint()
	if whole && r.rest != nil {
		return append(dst, r.rest...), nil
	}
	at := r.uvarint()
	if r.rest == nil || version != v.ResourceVersion || at > uint64(len(v.Object)) {
		return dst, errDamaged
	}
	return append(append(append(dst, v.Object[:at]...), r.rest...), v.Object[at:]...), nil
}

// Newest calls each for the newest version of every object that exists, in the order of
// keys, with the JSON that the API server has sent; both are only valid during the call.
// It returns the resourceVersion of that state: 0 if there is none that is complete. Nothing
// must be written at the same time.
func (r *Series) Newest(each func(v Version, json []byte) error) (version uint64, err error) {
	p := r.pin()
	if len(p.windows) == 0 || p.seen.Listing {
		return 0, p.snap.Close()
	}
	state := r.at(p, len(p.windows)-1, p.next-1)
	defer state.Close()
	prefix := newestKey(r.id, "")
	it, err := p.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return 0, r.damaged(err)
	}
	defer it.Close()
	it.First()
	var buf, key []byte
	for v, err := range state.All("", "") {
		if err != nil {
			return 0, err
		}
		key = appendObject(append(key[:0], prefix...), v.Key)
		for it.Valid() && bytes.Compare(it.Key(), key) < 0 {
			it.Next()
		}
		if !it.Valid() || !bytes.Equal(it.Key(), key) {
			return 0, r.damaged(fmt.Errorf("the newest version of %s: %w", v.Key, errDamaged))
		}
		if buf, err = restore(buf[:0], v, it.Value()); err != nil {
			return 0, r.damaged(fmt.Errorf("the newest version of %s: %w", v.Key, err))
		}
		if err := each(v, buf); err != nil {
			return 0, err
		}
	}
	return p.seen.ResourceVersion, r.damaged(it.Error())
}
