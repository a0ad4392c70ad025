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

// maxErrorBody is how much of the body of an error response is kept and redacted.
// Callers do not read more.
const maxErrorBody = 1 << 20

// redactor removes the credentials of a request from an error response to it. Some
// proxies repeat the request in their error messages, and those get into logs,
// errors and the status of a mirror. It also removes them from the warnings of any
// response, which are logged.
type redactor struct{ next http.RoundTripper }

const redacted = "[redacted]"

// protectCredentials returns cfg with a redactor and, if the token is in a file, a
// tokenReloader. They are the innermost round trippers, because requests have
// their credentials there.
func protectCredentials(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	wrap, file := cfg.WrapTransport, cfg.BearerTokenFile
	cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		next = redactor{next}
		if file != "" {
			next = tokenReloader{next, file, new(atomic.Pointer[replacement])}
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	var rest io.Reader = strings.NewReader("")
	if err != nil {
		rest = errorReader{err}
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

// WrappedRoundTripper implements the interface by which client-go finds the
// underlying transport.
func (r redactor) WrappedRoundTripper() http.RoundTripper { return r.next }

// credentialsOf returns the secrets in the value of an Authorization header: a
// token, or a password both encoded and plain.
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

// errorReader returns an error: the rest of a body that could not be read.
type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }
