package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// client is a client of the mirror, with its own connections. Those of a slow client
// have small buffers.
func (s *soak) client(slow bool) *http.Client {
	transport := &http.Transport{DisableCompression: true}
	if slow {
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				err = conn.(*net.TCPConn).SetReadBuffer(8 << 10)
			}
			return conn, err
		}
	}
	return &http.Client{Transport: transport}
}

// direct returns a client of the API server, without the proxies.
func (s *soak) direct() *http.Client {
	transport, err := rest.TransportFor(s.cp.AdminConfig())
	if err != nil {
		return http.DefaultClient
	}
	return &http.Client{Transport: transport}
}

// ended counts the end of a response.
func (s *soak) ended(reader string, err error) {
	how := "ended"
	var status *statusError
	switch {
	case err == nil:
	case errors.As(err, &status):
		how = fmt.Sprint(status.code)
		if status.code == http.StatusInternalServerError {
			how = status.Error()
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		how = "hung up"
	case errors.Is(err, io.EOF):
	case errors.Is(err, errExpired):
		how = "410, or gone"
	default:
		how = err.Error()
		if i := strings.Index(how, ": {"); i > 0 {
			how = how[:i]
		}
		if len(how) > 80 {
			how = how[:80] + "…"
		}
	}
	s.report.ended(reader, how)
}

// statusError is a response other than 200.
type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %.300s", e.code, e.body) }

// get returns the body of a response.
func (s *soak) get(ctx context.Context, client *http.Client, url, accept, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{resp.StatusCode, string(body)}
	}
	return body, nil
}

// unanswered leaves out what was asked for.
func unanswered(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
