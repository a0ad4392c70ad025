package cluster

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// maxProblem is how much of an answer that is no success is looked through, and
// handed on. Nobody reads more of one than that.
const maxProblem = 1 << 20

// redactor takes the credentials of a request out of the answer to it, if that is
// no success: there are proxies that repeat the request in what they say went
// wrong, and what went wrong is told in logs, in errors and to those who ask how
// a mirror is doing. It takes them out of warnings, which are logged, as well.
type redactor struct{ next http.RoundTripper }

const redacted = "[redacted]"

// guarding is cfg with what looks after credentials innermost, where requests carry
// them.
func guarding(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	wrap, file := cfg.WrapTransport, cfg.BearerTokenFile
	cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		next = redactor{next}
		if file != "" {
			next = rotation{next, file, new(atomic.Pointer[replaced])}
		}
		if wrap != nil {
			next = wrap(next)
		}
		return next
	}
	return cfg
}

// RoundTrip implements [http.RoundTripper].
func (r redactor) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	secrets := credentialsOf(req.Header.Get("Authorization"))
	warnings := resp.Header["Warning"]
	for i := range warnings {
		for _, secret := range secrets {
			warnings[i] = strings.ReplaceAll(warnings[i], secret, redacted)
		}
	}
	if len(secrets) == 0 || resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	var rest io.Reader = strings.NewReader("")
	if err != nil {
		rest = broken{err}
	}
	for _, secret := range secrets {
		body = bytes.ReplaceAll(body, []byte(secret), []byte(redacted))
	}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), resp.Body}
	return resp, nil
}

// WrappedRoundTripper is how client-go finds the transport that this one is of.
func (r redactor) WrappedRoundTripper() http.RoundTripper { return r.next }

// credentialsOf are the secrets in the value of an Authorization header: a token,
// or a password both plain and as it is sent.
func credentialsOf(authorization string) (secrets []string) {
	scheme, value, ok := strings.Cut(authorization, " ")
	if value = strings.TrimSpace(value); !ok || value == "" {
		return nil
	}
	secrets = append(secrets, value)
	if strings.EqualFold(scheme, "Basic") {
		if plain, err := base64.StdEncoding.DecodeString(value); err == nil {
			if _, password, _ := strings.Cut(string(plain), ":"); password != "" {
				secrets = append(secrets, password)
			}
		}
	}
	return secrets
}

// broken is the end of a body that broke off.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
