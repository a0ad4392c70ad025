package read

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// continueToken is the continue token of kube-apiserver: the start of the next page, and
// the version of its state, -1 for the newest. See EncodeContinue in
// k8s.io/apiserver/pkg/storage.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"` // relative to the namespace of the query, if it has one
	// Of, if not empty, is the digest of the query of the token. The API server does
	// not have this field and ignores it.
	Of string `json:"of,omitempty"`
	// Live is the API server's own token, for a live list.
	Live string `json:"live,omitempty"`
	// At is the moment of a state of the history, and Cursor finds the state again; see
	// [history.State.Cursor].
	At     string `json:"at,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

const (
	continueV1 = "meta.k8s.io/v1"
	newest     = -1
)

var errStale = &mirror.Error{Reason: mirror.Expired, Message: "the continue token is for another query, or for a state that is no longer kept; start the list again without it"}

// Token returns the continue token of the page after a key, of the state at a version,
// in kube-apiserver's form.
func Token(q *Query, version uint64, key string) string {
	return q.token(int64(version), key+"\x00", "")
}

// NewestToken returns the continue token of the page after a key, of the newest state.
func NewestToken(q *Query, key string) string { return q.token(newest, key, "") }

func (q *Query) token(version int64, start, of string) string {
	return continueToken{APIVersion: continueV1, ResourceVersion: version, StartKey: "/" + strings.TrimPrefix(start, q.prefix()), Of: of}.encode()
}

// liveToken returns the token of the next page of a live list from the API server's own
// token. It is empty if that is.
func (q *Query) liveToken(token string) string {
	if token == "" {
		return ""
	}
	return continueToken{APIVersion: continueV1, Of: q.digest(), Live: token}.encode()
}

// pastToken returns the token of the page after a key, of a state of the history.
func (q *Query) pastToken(cursor, key string) string {
	return continueToken{APIVersion: continueV1, ResourceVersion: newest, StartKey: "/" + strings.TrimPrefix(key+"\x00", q.prefix()), Of: q.digest(), At: q.params.At.String(), Cursor: cursor}.encode()
}

func (t continueToken) encode() string {
	body, err := json.Marshal(t)
	if err != nil {
		panic(err) // numbers and strings
	}
	return base64.RawURLEncoding.EncodeToString(body)
}

// prefix is the prefix of the keys of all objects in the query's namespace.
func (q *Query) prefix() string {
	if namespace := q.Namespace(); namespace != "" {
		return namespace + "/"
	}
	return ""
}

// Page decodes the query's continue token: the state of the page, and the key after
// which it begins. A token grants nothing: whatever it says, the page has only objects
// that the query selects. The error is an [*mirror.Error], with the text of
// kube-apiserver for a token that is not valid.
func (q *Query) Page() (match Match, version uint64, after string, err error) {
	t, err := q.decodeToken()
	switch {
	case err != nil:
		return 0, 0, "", err
	case t.ResourceVersion == 0:
		return 0, 0, "", badToken("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return 0, 0, "", badToken("encoded start key empty (version meta.k8s.io/v1)")
	}
	start := t.StartKey
	if !strings.HasPrefix(start, "/") {
		start = "/" + start
	}
	if path.Clean(start) != start {
		return 0, 0, "", badToken(t.StartKey)
	}
	after = q.prefix() + strings.TrimSuffix(start[1:], "\x00")
	if t.ResourceVersion < 0 {
		return Latest, 0, after, nil
	}
	return Exact, uint64(t.ResourceVersion), after, nil
}

// decodeToken decodes the query's token. It fails if the token names another query.
func (q *Query) decodeToken() (t continueToken, err error) {
	t, err = parseToken(q.params.Continue)
	switch {
	case err != nil:
		return t, badToken(err.Error())
	case t.APIVersion != continueV1:
		return t, badToken(fmt.Sprintf("server does not recognize this encoded version %v", t.APIVersion))
	case t.Of != "" && t.Of != q.digest():
		return t, errStale
	}
	return t, nil
}

func parseToken(s string) (t continueToken, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	return t, err
}

func badToken(why string) error {
	return mirror.Invalidf("invalid continue token: continue key is not valid: %s", why)
}

// digest is a hash of what the query selects, whatever its page.
func (q *Query) digest() string {
	labels, fields, within := "", "", "*"
	if q.params.Labels != nil {
		labels = q.params.Labels.String()
	}
	if q.params.Fields != nil {
		fields = q.params.Fields.String()
	}
	if q.within != nil {
		within = strings.Join(q.within, ",")
	}
	past := ""
	if q.params.At != nil {
		past = "past" // of which moment, the token says
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %q", q.params.Cluster.Name(), q.params.Resource, q.params.Namespace, within, labels, fields, past))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
