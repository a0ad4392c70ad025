package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
)

// errDown marks the errors of a cluster that does not answer, or whose answer makes no
// sense.
var errDown = errors.New("the cluster does not answer")

// fetch sends the request to the cluster. If the cluster says that old has not changed,
// fetch returns that, revalidated.
func (h *Handler) fetch(ctx context.Context, q upstreamRequest, old *answer) (*answer, error) {
	target, err := q.url()
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the path %q cannot be requested: %v", q.path, err))
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target.String(), nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the path %q cannot be requested", q.path))
	}
	req.Header.Set("Accept", q.accept)
	if old != nil && old.etag != "" {
		req.Header.Set("If-None-Match", old.etag)
	}
	// Leave redirects to the client: they name the schema.
	client := *q.cluster.HTTPClient()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return nil, h.down(q, err, 0)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	if err == nil && len(body) > maxSize {
		err = fmt.Errorf("the answer has more than %d bytes", maxSize)
	}
	if err != nil {
		return nil, h.down(q, err, 0)
	}
	switch code := resp.StatusCode; {
	case code == http.StatusNotModified && old != nil:
		return old.revalidated(), nil
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, h.down(q, fmt.Errorf("%s: %.200s", resp.Status, body), time.Duration(seconds)*time.Second)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return nil, unavailable(fmt.Sprintf("the mirror itself may not read %s of cluster %s: %s", q.path, q.cluster.Name(), resp.Status), 0)
	case q.method == http.MethodHead:
		out := newAnswer(code, resp.Header, nil)
		out.size = int(resp.ContentLength)
		return out, nil
	case code != http.StatusOK || h.opts.Everything || q.parts[0] != "api" && q.parts[0] != "apis":
		return newAnswer(code, resp.Header, body), nil
	}
	return reduced(resp.Header, body)
}

// down returns the error of a cluster that does not answer.
func (h *Handler) down(q upstreamRequest, err error, retry time.Duration) error {
	return errors.Join(unavailable(fmt.Sprintf("request to cluster %s for %s: %s", q.cluster.Name(), q.path, cluster.PublicMessage(err)), max(retry, time.Second)), errDown)
}

func unavailable(message string, retry time.Duration) error {
	out := apierrors.NewServiceUnavailable(message)
	if retry > 0 {
		out.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(retry.Seconds())}
	}
	return out
}
