package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// silentAfter is how long a server may not answer before the user is told.
const silentAfter = 5 * time.Second

// link is what the requests to one server have in common.
type link struct {
	notice  func(string)
	server  string // the URL, for messages
	correct string // what to do about a wrong URL, before the right one
	ca      string // the file of --certificate-authority, "" for none
	timeout time.Duration
	told    atomic.Bool // that the server is silent
}

// watched makes requests of a link.
type watched struct {
	*link
	next http.RoundTripper
}

// uselessError is the error of a request that would fail in the same way if it were
// repeated. It names the server; hint says what to do.
type uselessError struct {
	err  error
	hint string
}

func (e *uselessError) Error() string { return e.err.Error() + "; " + e.hint }

func (e *uselessError) Unwrap() error { return e.err }

// useless reports whether err is a [uselessError].
func useless(err error) bool {
	var e *uselessError
	return errors.As(err, &e)
}

// RoundTrip implements [http.RoundTripper]. A watch has to begin within the timeout,
// any other request has to end within it.
func (l watched) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	expired := &uselessError{fmt.Errorf("no answer from %s within %v", l.server, l.timeout), "--request-timeout limits it"}
	expiry := func() bool { return false }
	if l.timeout > 0 {
		expiry = time.AfterFunc(l.timeout, func() { cancel(expired) }).Stop
	}
	var resp *http.Response
	err := l.listen(func() (err error) {
		resp, err = l.next.RoundTrip(req.WithContext(ctx))
		return err
	})
	if err == nil {
		err = l.misdirected(resp)
	}
	if err != nil {
		expiry()
		defer cancel(nil)
		if context.Cause(ctx) == error(expired) {
			return nil, expired
		}
		return nil, l.explain(err)
	}
	watch := req.URL.Query().Get("watch") == "true"
	if watch {
		expiry()
	}
	resp.Body = &watchedBody{resp.Body, l.link, watch, func(err error) error {
		if err != nil && context.Cause(ctx) == error(expired) {
			return expired
		}
		return err
	}, func() { expiry(); cancel(nil) }}
	return resp, nil
}

// WrappedRoundTripper implements the interface by which client-go finds the
// underlying transport.
func (l watched) WrappedRoundTripper() http.RoundTripper { return l.next }

// listen calls receive, which waits for the server, and tells the user if that takes
// long: once, until the server says something.
func (l *link) listen(receive func() error) error {
	timer := time.AfterFunc(silentAfter, func() {
		if l.told.CompareAndSwap(false, true) {
			l.notice(fmt.Sprintf("no answer from %s for %v; still waiting", l.server, silentAfter))
		}
	})
	defer timer.Stop()
	err := receive()
	if err == nil {
		l.told.Store(false)
	}
	return err
}

// watchedBody is the body of an answer.
type watchedBody struct {
	io.ReadCloser
	link    *link
	watch   bool // may be silent
	explain func(error) error
	close   func()
}

func (b *watchedBody) Read(p []byte) (n int, err error) {
	if b.watch {
		return b.ReadCloser.Read(p)
	}
	_ = b.link.listen(func() error {
		n, err = b.ReadCloser.Read(p)
		return err
	})
	return n, b.explain(err)
}

func (b *watchedBody) Close() error {
	defer b.close()
	return b.ReadCloser.Close()
}

// explain adds what to do to errors that flags or another URL would avoid.
func (l *link) explain(err error) error {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		if l.ca != "" {
			err = fmt.Errorf("%w, which is not in %s", err, l.ca)
		}
		return &uselessError{fmt.Errorf("%s: %w", l.server, err), "name the file of that authority's certificate with --certificate-authority (--insecure-skip-tls-verify trusts anybody)"}
	case errors.As(err, &name):
		return &uselessError{fmt.Errorf("%s: %w", l.server, err), "connect by a name that the certificate is for, or say with --tls-server-name which of them to expect"}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &uselessError{fmt.Errorf("%s: %w", l.server, err), "renew the server's certificate, or correct this machine's clock (--insecure-skip-tls-verify trusts anybody)"}
	case errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return &uselessError{fmt.Errorf("%s speaks HTTP, not HTTPS", l.server), l.correct + strings.Replace(l.server, "https://", "http://", 1)}
	case strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`): // an alert of TLS
		return l.encrypted()
	}
	return err
}

// encrypted is the error of plain HTTP sent to a port that expects TLS.
func (l *link) encrypted() error {
	return &uselessError{fmt.Errorf("%s speaks HTTPS, not HTTP", l.server), l.correct + strings.Replace(l.server, "http://", "https://", 1)}
}

// misdirected returns an error if resp says that the server expects HTTPS. Go's
// servers and nginx say so.
func (l *link) misdirected(resp *http.Response) error {
	if resp.StatusCode != http.StatusBadRequest || resp.Request.URL.Scheme != "http" {
		return nil
	}
	start, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
	for _, says := range []string{"HTTP request to an HTTPS server", "plain HTTP request was sent to HTTPS port"} {
		if bytes.Contains(start, []byte(says)) {
			resp.Body.Close()
			return l.encrypted()
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	return nil
}
