package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/apipath"
	"github.com/tidings-io/tidings/internal/source"
)

// Accept headers. Servers that do not support a form answer with plain objects.
const (
	asObjects  = "application/json"
	asMetadata = "application/json;as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1,application/json" // %s: List or not
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"
)

// pageSize is the number of objects to request at a time, as in kubectl.
const pageSize = 500

// query selects objects of a target. next is a continue token, limit the size of a
// page, pageSize if it is 0.
type query struct {
	labels, fields, next string
	limit                int
}

// fetch requests a page of o, or the single object o, and returns the response's
// JSON.
func fetch(ctx context.Context, o target, q query, accept string) ([]byte, error) {
	verb := "list"
	if accept == asMetadata {
		accept = fmt.Sprintf(asMetadata, map[bool]string{true: "List"}[o.name == ""])
	}
	values := url.Values{}
	if o.name != "" {
		verb = "get"
	} else {
		values.Set("limit", strconv.Itoa(cmp.Or(q.limit, pageSize)))
		for key, value := range map[string]string{"labelSelector": q.labels, "fieldSelector": q.fields, "continue": q.next} {
			if value != "" {
				values.Set(key, value)
			}
		}
	}
	r := o.resource
	u, err := apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: o.namespace, Name: o.name}.URL(o.cluster.BaseURL())
	if err == nil {
		u.RawQuery = values.Encode()
		var body []byte
		if body, err = httpGet(ctx, o.cluster.HTTPClient(), u, accept); err == nil {
			return body, nil
		}
	}
	return nil, &source.Error{Verb: verb, Err: err, Target: source.Target{
		Cluster: o.cluster.Name(), Resource: r.GVR(), Kind: r.Kind, Namespace: o.namespace,
	}}
}

// httpGet returns the body of a 200 response. Any other response is an
// *apierrors.StatusError.
func httpGet(ctx context.Context, client *http.Client, u *url.URL, accept string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return nil, statusError(resp, body)
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, fmt.Errorf("the response of %s is %q, not JSON: is this the right server?", u.Redacted(), resp.Header.Get("Content-Type"))
	}
	return io.ReadAll(resp.Body)
}

func statusError(resp *http.Response, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	message := strings.TrimSpace(string(body))
	if runes := []rune(message); len(runes) > 500 {
		message = string(runes[:500]) + "…"
	}
	err := apierrors.NewGenericServerResponse(resp.StatusCode, "get", schema.GroupResource{}, "", message, 0, true)
	if message != "" {
		err.ErrStatus.Message = message
	} else {
		err.ErrStatus.Message = "the server answered " + resp.Status
	}
	return err
}

// fetchPage is fetch, decoded as a T.
func fetchPage[T any](ctx context.Context, o target, q query, accept string) (*T, error) {
	body, err := fetch(ctx, o, q, accept)
	if err != nil {
		return nil, err
	}
	page := new(T)
	if err := decode(body, page); err != nil {
		return nil, fmt.Errorf("read the response for %s: %w", o, err)
	}
	return page, nil
}
