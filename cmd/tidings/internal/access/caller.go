package access

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Credentials are what a request is authenticated by. They never print as text.
type Credentials struct {
	token          *string             // a pointer, so that printing does not reveal it
	tokenID        digest              // the key of the token's review
	certificates   []*x509.Certificate // as sent: the client's own first
	certificatesID digest              // identifies them, if there are any
	impersonation  http.Header         // the headers that name the user to impersonate
	malformed      bool                // there are credentials that cannot be parsed
}

// Empty reports whether there are no credentials.
func (c Credentials) Empty() bool {
	return c.token == nil && len(c.certificates) == 0 && !c.malformed
}

// TokenOnly returns the credentials without the certificate, which a browser adds by
// itself. ok reports whether there is a token.
func (c Credentials) TokenOnly() (_ Credentials, ok bool) {
	c.certificates = nil
	return c, c.token != nil
}

// Redact returns text without the token, in case a client has put it somewhere else,
// too.
func (c Credentials) Redact(text string) string {
	if c.token == nil {
		return text
	}
	for _, form := range []string{*c.token, url.QueryEscape(*c.token), url.PathEscape(*c.token)} {
		text = strings.ReplaceAll(text, form, "[redacted]")
	}
	return text
}

// String keeps tokens out of anything printed.
func (c Credentials) String() string { return "credentials" }

// GoString is like String.
func (c Credentials) GoString() string { return "credentials" }

// LogValue is like String.
func (c Credentials) LogValue() slog.Value { return slog.StringValue("credentials") }

// CredentialsOf reads the credentials of a request: the bearer token in the
// Authorization header or, for WebSockets, in the subprotocol that browsers send it in;
// the client certificate; and the impersonation headers. It follows
// k8s.io/apiserver/pkg/authentication/request and its filters.
func CredentialsOf(r *http.Request) Credentials {
	c := Credentials{impersonation: impersonationHeaders(r.Header)}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		c.certificates = r.TLS.PeerCertificates
		c.certificatesID = digestOfChain(c.certificates)
	}
	if fields := strings.SplitN(strings.TrimSpace(r.Header.Get("Authorization")), " ", 3); len(fields) >= 2 && strings.EqualFold(fields[0], "bearer") {
		if fields[1] != "" {
			c.token = &fields[1]
		}
	}
	if c.token == nil && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		var others []string
		var token string
		if token, others, c.malformed = subprotocols(r.Header); token != "" {
			c.token = &token
			c.malformed = c.malformed || len(others) == 0 // no protocol is left to answer with
		}
	}
	if c.token != nil {
		c.tokenID = digestOf("token", *c.token)
	}
	return c
}

const (
	subprotocol       = "Sec-Websocket-Protocol"
	tokenPrefix       = "base64url.bearer.authorization.k8s.io."
	impersonatePrefix = "Impersonate-"
)

// subprotocols returns the token among the subprotocols, and the others.
func subprotocols(h http.Header) (token string, others []string, malformed bool) {
	for _, line := range h[subprotocol] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, tokenPrefix)
			if !ok {
				others = append(others, protocol)
				continue
			}
			plain, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || !utf8.Valid(plain) || token != "" {
				malformed = true
				continue
			}
			token = string(plain)
		}
	}
	return token, others, malformed
}

// StripToken removes the token from the headers of a request, so that no later handler
// forwards or logs it. A request that is forwarded for the caller gets it back from
// [Caller.SetCredentials].
func StripToken(h http.Header) {
	h.Del("Authorization")
	if token, others, _ := subprotocols(h); token != "" {
		h.Set(subprotocol, strings.Join(others, ", "))
	}
}

// Caller is an authenticated user, as the cluster knows it.
type Caller struct {
	info        authenticationv1.UserInfo
	id          digest // of the whole info
	key         string // of the user
	owner       string // the key of the user that the credentials belong to; reviews and cached results count against it
	credentials Credentials
	byToken     bool // authenticated by the token in credentials

	impersonator *Caller // nil: the caller is the user that the credentials belong to
}

func (r *Reviewer) newCaller(info authenticationv1.UserInfo) *Caller {
	key := digestOf(r.name, info.Username, info.UID)
	return &Caller{info: info, id: digestOfUser(info), key: string(key[:]), owner: string(key[:])}
}

// digestOfUser returns different digests for users that differ in anything.
func digestOfUser(info authenticationv1.UserInfo) digest {
	body, err := json.Marshal(info) // sorts the keys of Extra
	if err != nil {
		panic(err) // cannot happen: all fields are strings
	}
	return digestOf(string(body))
}

// Name returns the user name.
func (c *Caller) Name() string { return c.info.Username }

// Key identifies the user by cluster, name and uid. All credentials of one user have
// the same key, so that more of them do not raise a limit.
func (c *Caller) Key() string { return c.key }

// String returns the user name.
func (c *Caller) String() string { return c.info.Username }

// GoString returns the user name: the rest may contain a token.
func (c *Caller) GoString() string { return c.info.Username }

// LogValue returns the user name.
func (c *Caller) LogValue() slog.Value { return slog.StringValue(c.info.Username) }

// User returns the caller in the form that packages of k8s.io/apiserver use.
func (c *Caller) User() user.Info {
	extra := make(map[string][]string, len(c.info.Extra))
	for k, v := range c.info.Extra {
		extra[k] = slices.Clone([]string(v))
	}
	return &user.DefaultInfo{Name: c.info.Username, UID: c.info.UID, Groups: slices.Clone(c.info.Groups), Extra: extra}
}

// Users returns the user that the credentials belong to and, if it is another one, the
// user that the caller impersonates: name, uid and groups of both. Extras are left out,
// since they may be anything.
func (c *Caller) Users() (authenticated authenticationv1.UserInfo, impersonated *authenticationv1.UserInfo) {
	plain := func(c *Caller) authenticationv1.UserInfo {
		return authenticationv1.UserInfo{Username: c.info.Username, UID: c.info.UID, Groups: slices.Clone(c.info.Groups)}
	}
	if c.impersonator == nil {
		return plain(c), nil
	}
	other := plain(c)
	return plain(c.impersonator), &other
}

// withCredentials returns the caller with the credentials of a request. Cached callers
// have none.
func (c *Caller) withCredentials(credentials Credentials, self bool) *Caller {
	out := *c
	out.credentials, out.byToken = credentials, self
	return &out
}

// SetCredentials puts the caller's own credentials into a request to the cluster: its
// token and its impersonation headers. It returns false for a caller that was
// authenticated by a certificate: nobody else can present it to the cluster.
func (c *Caller) SetCredentials(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, impersonatePrefix) {
			h.Del(name)
		}
	}
	h.Del("Authorization")
	if !c.byToken {
		return false
	}
	h.Set("Authorization", "Bearer "+*c.credentials.token)
	maps.Copy(h, c.credentials.impersonation)
	return true
}

type callerKey struct{}

// WithCaller returns a context that carries the caller of a request.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller of a request. There is none if callers are not
// authenticated.
func CallerFrom(ctx context.Context) (*Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	return c, ok
}
