package mirror

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash"
	"io"
)

// position is what a continue token means.
type position struct {
	snapshot uint64 // 0 for the first page, which has no token
	after    string // key of the last object served
	served   int64  // objects served so far
	total    int64  // objects there are in all, -1 if unknown
	upstream string // for live lists: the API server's own token
}

// tokens makes and reads continue tokens: base64url of a MAC and a little JSON.
// The MAC, of a key that lasts as long as the process, covers the query as
// well, so that a token is of use for the query it was given for and nothing
// else.
type tokens struct{ key [32]byte }

// sealed is the JSON in a token.
type sealed struct {
	Snapshot uint64 `json:"s,omitempty"`
	After    string `json:"a,omitempty"`
	Served   int64  `json:"n,omitempty"`
	Total    int64  `json:"t,omitempty"`
	Upstream string `json:"u,omitempty"`
}

const macSize = 16

var (
	errStale   = &Error{Reason: Expired, Message: "the continue token is of another query, or of a state that is no longer held; begin the list again without it"}
	errNoToken = &Error{Reason: Invalid, Message: "the continue token is damaged: hand back the one from the page before as it was"}
)

func (t *tokens) seal(q Query, p position) string {
	body, err := json.Marshal(sealed{p.snapshot, p.after, p.served, p.total, p.upstream})
	if err != nil {
		panic(err) // numbers and strings
	}
	return base64.RawURLEncoding.EncodeToString(append(t.mac(q, body), body...))
}

// open reads the query's token.
func (t *tokens) open(q Query) (position, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(q.Continue)
	var s sealed
	if err != nil || len(raw) <= macSize || json.Unmarshal(raw[macSize:], &s) != nil {
		return position{}, errNoToken
	}
	if !hmac.Equal(raw[:macSize], t.mac(q, raw[macSize:])) {
		return position{}, errStale
	}
	return position{s.Snapshot, s.After, s.Served, s.Total, s.Upstream}, nil
}

func (t *tokens) mac(q Query, body []byte) []byte {
	h := hmac.New(sha256.New, t.key[:])
	gvr := q.Resource.GVR()
	selectors := [2]string{}
	if q.Labels != nil {
		selectors[0] = q.Labels.String()
	}
	if q.Fields != nil {
		selectors[1] = q.Fields.String()
	}
	source := q.Source
	if source == "" {
		source = Cache
	}
	for _, part := range []string{q.Cluster(), gvr.Group, gvr.Version, gvr.Resource, q.Namespace, list(q.Namespaces), selectors[0], selectors[1], string(source), string(body)} {
		writePart(h, part)
	}
	return h.Sum(nil)[:macSize]
}

// writePart writes a string so that where it ends is beyond doubt.
func writePart(h hash.Hash, part string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(part)))
	_, _ = h.Write(size[:])
	_, _ = io.WriteString(h, part)
}
