// Package past has what a server's answers about the past say, as JSON.
package past

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/diff"
)

// Moment says which moment an answer shows.
type Moment struct {
	Time            time.Time `json:"time"`
	ResourceVersion string    `json:"resourceVersion"`
	Gap             *Gap      `json:"gap,omitempty"`
	Thinned         string    `json:"thinned,omitempty"`
}

// Gap is a time without a record.
type Gap struct {
	From   time.Time  `json:"from"`
	To     *time.Time `json:"to,omitempty"` // nil: until now
	Reason string     `json:"reason"`
	Late   bool       `json:"late,omitempty"` // nothing was missed, but recorded after the gap
}

// Change is one change of an object.
type Change struct {
	Type            string          `json:"type"`
	Time            time.Time       `json:"time,omitzero"`
	Namespace       string          `json:"namespace,omitempty"`
	Name            string          `json:"name"`
	UID             string          `json:"uid"`
	ResourceVersion string          `json:"resourceVersion"`
	Writers         json.RawMessage `json:"writers,omitempty"`
	Owners          []string        `json:"owners,omitempty"` // the uids of ownerReferences
	Relist          bool            `json:"relist,omitempty"`
	Changes         int             `json:"changes,omitempty"` // that are folded into this one, if it is known
	Fields          []Field         `json:"fields,omitempty"`
	Object          json.RawMessage `json:"object,omitempty"`
	Before          json.RawMessage `json:"before,omitempty"`
}

// Field is what happened to a field.
type Field struct {
	Op   diff.Op         `json:"op"`
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// FieldsOf returns differences as they are sent.
func FieldsOf(changes []diff.Change) []Field {
	out := make([]Field, len(changes))
	for i, c := range changes {
		out[i] = Field{c.Op, c.Path, encode(c.Old), encode(c.New)}
	}
	return out
}

// encode returns a value as JSON, nil if there is none.
func encode(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // cannot fail: it was JSON
	return bytes.TrimSpace(b.Bytes())
}
