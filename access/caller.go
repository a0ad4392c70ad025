package access

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Credentials are what a request brings to say who makes it. They print as
// nothing.
type Credentials struct {
	token        *string             // behind a pointer, where printing does not follow
	certificates []*x509.Certificate // as sent, the client's own first
	as           impersonation
	malformed    bool // there is something, and it cannot be read
}

// None says that there are none.
func (c Credentials) None() bool {
	return c.token == nil && len(c.certificates) == 0 && !c.malformed
}

// Explicit returns the credentials that a request was given by the program that
// made it: its token, without the certificate that a browser adds by itself. ok
// says that there is a token.
func (c Credentials) Explicit() (explicit Credentials, ok bool) {
	c.certificates = nil
	return c, c.token != nil
}

// String keeps tokens out of whatever is printed.
func (c Credentials) String() string { return "credentials" }

// GoString does the same.
func (c Credentials) GoString() string { return "credentials" }

// LogValue does the same.
func (c Credentials) LogValue() slog.Value { return slog.StringValue("credentials") }

// CredentialsOf reads the bearer token of the Authorization header or, for
// WebSockets, of the subprotocol that browsers send it in; the client
// certificate; and on whose behalf the request is made, as
// k8s.io/apiserver/pkg/authentication/request and its filters do.
func CredentialsOf(r *http.Request) Credentials {
	c := Credentials{as: impersonationOf(r.Header)}
	if r.TLS != nil {
		c.certificates = r.TLS.PeerCertificates
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
			c.malformed = c.malformed || len(others) == 0 // nothing to answer with
		}
	}
	return c
}

const (
	subprotocol    = "Sec-Websocket-Protocol"
	tokenInside    = "base64url.bearer.authorization.k8s.io."
	impersonateAny = "Impersonate-"
)

// subprotocols reads the token among the subprotocols, and the others.
func subprotocols(h http.Header) (token string, others []string, malformed bool) {
	for _, line := range h[subprotocol] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, tokenInside)
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

// Strip takes the token out of a request, once it has been read, so that nothing
// behind hands it on or prints it. What is handed to the cluster on the caller's
// behalf takes it from [Caller.Credit].
func Strip(h http.Header) {
	h.Del("Authorization")
	if token, others, _ := subprotocols(h); token != "" {
		h.Set(subprotocol, strings.Join(others, ", "))
	}
}

// Caller is who makes a request, as the cluster knows it.
type Caller struct {
	info        authenticationv1.UserInfo
	id          digest // of all of info
	key         string // of the user
	payer       string // the key of the user whose credentials they are: what is remembered counts against it
	credentials Credentials
	self        bool // the credentials alone say who it is: the token is the caller's
}

func (r *Reviewer) newCaller(info authenticationv1.UserInfo) *Caller {
	key := digestOf(r.name, info.Username, info.UID)
	return &Caller{info: info, id: digestOfUser(info), key: string(key[:]), payer: string(key[:])}
}

// digestOfUser is different for users who differ in anything.
func digestOfUser(info authenticationv1.UserInfo) digest {
	body, err := json.Marshal(info) // sorts the keys of Extra
	if err != nil {
		panic(err) // strings
	}
	return digestOf(string(body))
}

// Name is the caller's user name.
func (c *Caller) Name() string { return c.info.Username }

// Key stands for the user, by cluster, name and uid. It is the same for all
// credentials of one, so that having more of them is no way around a limit.
func (c *Caller) Key() string { return c.key }

// String is the user name.
func (c *Caller) String() string { return c.info.Username }

// GoString is the user name too: there may be a token in the rest.
func (c *Caller) GoString() string { return c.info.Username }

// LogValue is the user name too.
func (c *Caller) LogValue() slog.Value { return slog.StringValue(c.info.Username) }

// User is the caller as packages of k8s.io/apiserver know it.
func (c *Caller) User() user.Info {
	extra := make(map[string][]string, len(c.info.Extra))
	for k, v := range c.info.Extra {
		extra[k] = slices.Clone([]string(v))
	}
	return &user.DefaultInfo{Name: c.info.Username, UID: c.info.UID, Groups: slices.Clone(c.info.Groups), Extra: extra}
}

// with returns the caller with the credentials of a request. What the caches
// hold has none.
func (c *Caller) with(credentials Credentials, self bool) *Caller {
	out := *c
	out.credentials, out.self = credentials, self
	return &out
}

// Credit puts the caller's own credentials into a request to the cluster: its
// token, and on whose behalf it acts. It returns false for callers who have
// shown a certificate only: nobody but them can show it to the cluster.
func (c *Caller) Credit(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, impersonateAny) {
			h.Del(name)
		}
	}
	h.Del("Authorization")
	if !c.self {
		return false
	}
	h.Set("Authorization", "Bearer "+*c.credentials.token)
	maps.Copy(h, c.credentials.as.headers)
	return true
}

type callerKey struct{}

// WithCaller returns a context that knows who makes a request.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns who makes a request. There is nobody where callers are not
// authenticated.
func CallerFrom(ctx context.Context) (*Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	return c, ok
}
