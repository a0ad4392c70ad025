package read

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/tidings-io/tidings/mirror"
)

// continueToken is kube-apiserver's: where the next page begins, and of which state
// it is; -1 is the newest. See EncodeContinue in k8s.io/apiserver/pkg/storage.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"` // relative to the namespace of the query, if it has one
	// Of, if not empty, stands for the query that the token was given for. The API
	// server knows no such field, and does not look at it.
	Of string `json:"of,omitempty"`
	// Live is the API server's own token, of a list that came straight from it.
	Live string `json:"live,omitempty"`
}

const (
	continueV1 = "meta.k8s.io/v1"
	newest     = -1
)

var errStale = &mirror.Error{Reason: mirror.Expired, Message: "the continue token is of another query, or of a state that is no longer held; begin the list again without it"}

// Token is the continue token of the page behind an object with the given key, of
// the state at a version, in kube-apiserver's form.
func Token(q *Query, version uint64, key string) string {
	return q.token(int64(version), key+"\x00", "")
}

// NewestToken is the token that goes on behind a key with the newest state.
func NewestToken(q *Query, key string) string { return q.token(newest, key, "") }

func (q *Query) token(version int64, start, of string) string {
	return continueToken{APIVersion: continueV1, ResourceVersion: version, StartKey: "/" + strings.TrimPrefix(start, q.prefix()), Of: of}.seal()
}

// liveToken is the token of the next page of a list that came straight from the
// cluster; empty if there is none.
func (q *Query) liveToken(token string) string {
	if token == "" {
		return ""
	}
	return continueToken{APIVersion: continueV1, Of: q.digest(), Live: token}.seal()
}

func (t continueToken) seal() string {
	body, err := json.Marshal(t)
	if err != nil {
		panic(err) // numbers and strings
	}
	return base64.RawURLEncoding.EncodeToString(body)
}

// prefix is what the keys of all objects of the query's namespace begin with.
func (q *Query) prefix() string {
	if namespace := q.Namespace(); namespace != "" {
		return namespace + "/"
	}
	return ""
}

// Page reads the query's continue token: which state it is of, and the key that the
// page is behind. A token holds no right: whatever it says, the page is of what the
// query selects. The error is an [*mirror.Error], in kube-apiserver's words for a
// token that cannot be read.
func (q *Query) Page() (match Match, version uint64, after string, err error) {
	t, err := q.unseal()
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

// unseal reads the query's token, which is of this query or does not say of which.
func (q *Query) unseal() (t continueToken, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(q.ask.Continue)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
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

func badToken(why string) error {
	return mirror.Invalidf("invalid continue token: continue key is not valid: %s", why)
}

// digest stands for what the query is about, but for its page.
func (q *Query) digest() string {
	labels, fields, within := "", "", "*"
	if q.ask.Labels != nil {
		labels = q.ask.Labels.String()
	}
	if q.ask.Fields != nil {
		fields = q.ask.Fields.String()
	}
	if q.within != nil {
		within = strings.Join(q.within, ",")
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q", q.ask.Cluster.Name(), q.ask.Resource, q.ask.Namespace, within, labels, fields))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
