package history

import (
	"bytes"
	"encoding/json"
	"slices"
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

// withoutManagedFields returns an object's JSON without metadata.managedFields, and the
// entries in which it differs from an earlier version, as JSON. before may be nil; then
// the entries are the newest ones. cut is what was left out at an offset. The results do
// not refer to o.
func withoutManagedFields(o, before []byte) (object, writers, cut []byte, at int) {
	now, from, to := managedFields(o)
	if from < 0 {
		return bytes.Clone(o), nil, nil, 0
	}
	object = append(append(make([]byte, 0, len(o)-(to-from)), o[:from]...), o[to:]...)
	cut, at = bytes.Clone(o[from:to]), from
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
	metadata := gjson.Get(unsafe.String(unsafe.SliceData(o), len(o)), "metadata") // not GetBytes, which copies
	if metadata.Index == 0 {
		return value, from, to
	}
	metadata.ForEach(func(key, v gjson.Result) bool {
		if key.Str != "managedFields" {
			return true
		}
		value, from, to = v, metadata.Index+key.Index, metadata.Index+v.Index+len(v.Raw)
		return false
	})
	if from < 0 {
		return value, from, to
	}
	if key := []byte(`"managedFields"`); !bytes.HasPrefix(o[from:], key) { // indexes are relative to another text
		from = bytes.Index(o, key)
		to = bytes.Index(o, []byte(value.Raw)) + len(value.Raw)
		if from < 0 || to <= from {
			return value, -1, 0
		}
	}
	switch {
	case to < len(o) && o[to] == ',':
		to++
	case from > 0 && o[from-1] == ',':
		from--
	}
	return value, from, to
}
