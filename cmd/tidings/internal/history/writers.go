package history

import (
	"encoding/json"
	"slices"
	"sync"
	"unsafe"

	"github.com/tidwall/gjson"
)

// Writer entries say who changed an object: the entries of managedFields, without the
// fields.
type managerEntry struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Time        string `json:"time,omitempty"`
}

// buffers are for what [withoutManagedFields] returns.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// withoutManagedFields returns an object's JSON without metadata.managedFields, and the
// entries in which it differs from an earlier version, as JSON. before may be nil; then
// the entries are the newest ones. cut is what was left out at an offset. The results do
// not refer to o; the object and cut are in the buffer.
func withoutManagedFields(buffer *[]byte, o, before []byte) (object, writers, cut []byte, at int) {
	now, from, to := managedFields(o)
	if from < 0 {
		*buffer = append((*buffer)[:0], o...)
		return *buffer, nil, nil, 0
	}
	b := append(append((*buffer)[:0], o[:from]...), o[to:]...)
	n := len(b)
	*buffer = append(b, o[from:to]...)
	object, cut, at = (*buffer)[:n:n], (*buffer)[n:], from
	var known []string // few: a map would cost more
	if before != nil {
		was, _, _ := managedFields(before)
		was.ForEach(func(_, entry gjson.Result) bool {
			known = append(known, entry.Raw)
			return true
		})
	}
	var changed []managerEntry
	newest := ""
	now.ForEach(func(_, entry gjson.Result) bool {
		if slices.Contains(known, entry.Raw) {
			return true
		}
		var e managerEntry
		entry.ForEach(func(key, v gjson.Result) bool {
			switch key.Str {
			case "manager":
				e.Manager = v.String()
			case "operation":
				e.Operation = v.String()
			case "subresource":
				e.Subresource = v.String()
			case "time":
				e.Time = v.String()
			}
			return true
		})
		switch {
		case before == nil && e.Time > newest:
			changed, newest = []managerEntry{e}, e.Time
		case before != nil || e.Time == newest:
			changed = append(changed, e)
		}
		return true
	})
	if len(changed) > 0 {
		writers, _ = json.Marshal(changed) // of strings: cannot fail
	}
	return object, writers, cut, at
}

// managedFields returns the value of metadata.managedFields, and where the member begins
// and ends, with one of the commas around it; -1 if there is none. The value refers to o.
func managedFields(o []byte) (value gjson.Result, from, to int) {
	from = -1
	text := unsafe.String(unsafe.SliceData(o), len(o)) // not GetBytes, which copies
	gjson.Get(text, "metadata").ForEach(func(key, v gjson.Result) bool {
		if key.Str != "managedFields" {
			return true
		}
		value, from = v, offset(text, key.Raw)
		to = offset(text, v.Raw) + len(v.Raw)
		return false
	})
	switch {
	case from < 0:
	case to < len(o) && o[to] == ',':
		to++
	case from > 0 && o[from-1] == ',':
		from--
	}
	return value, from, to
}

// offset is where a part of a text begins. Indexes of gjson are relative to one text or
// another, but what is raw is a part of the text.
func offset(text, part string) int {
	return int(uintptr(unsafe.Pointer(unsafe.StringData(part))) - uintptr(unsafe.Pointer(unsafe.StringData(text))))
}
