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
	asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// pageSize is the number of objects to request at a time.
const pageSize = 500

// query selects objects of a list.
type query struct {
	labels, fields string
	limit          int // of a page; pageSize if it is 0
}

// fetchMetadata requests the metadata of up to a page of o's objects.
func fetchMetadata(ctx context.Context, o target, q query) (*metav1.PartialObjectMetadataList, error) {
	r := o.resource
	values := url.Values{"limit": {strconv.Itoa(cmp.Or(q.limit, pageSize))}}
	for key, value := range map[string]string{"labelSelector": q.labels, "fieldSelector": q.fields} {
		if value != "" {
			values.Set(key, value)
		}
	}
	page := new(metav1.PartialObjectMetadataList)
	u, err := apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: o.namespace}.URL(o.cluster.BaseURL())
	if err == nil {
		u.RawQuery = values.Encode()
		var body []byte
		if body, err = httpGet(ctx, o.cluster.HTTPClient(), u, asMetadata); err == nil {
			err = decode(body, page)
		}
	}
	if err != nil {
		return nil, &source.Error{Verb: "list", Err: err, Target: source.Target{
			Cluster: o.cluster.Name(), Resource: r.GVR(), Kind: r.Kind, Namespace: o.namespace,
		}}
	}
	return page, nil
}

// httpGet returns the body of a 200 response. Any other response is an
// *apierrors.StatusError.
func httpGet(ctx context.Context, client *http.Client, u *url.URL, accept string) ([]byte, error) {
	resp, err := request(ctx, client, u, accept, statusError)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, fmt.Errorf("the response of %s is %q, not JSON: is this the right server?", u.Redacted(), resp.Header.Get("Content-Type"))
	}
	return io.ReadAll(resp.Body)
}

// request returns a 200 response, whose body the caller must close. refusal makes the error
// of any other, from the beginning of its body.
func request(ctx context.Context, client interface {
	Do(*http.Request) (*http.Response, error)
}, u *url.URL, accept string, refusal func(*http.Response, []byte) error) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return nil, refusal(resp, body)
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
