package cli

import (
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
)

// Accept headers. Servers that do not support a form answer with plain objects.
const (
	asObjects  = "application/json"
	asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// pageSize is the number of objects to request at a time.
const pageSize = 500

// fetchNames requests the metadata of up to a page of o's objects.
func fetchNames(ctx context.Context, o target) (*metav1.PartialObjectMetadataList, error) {
	r := o.resource
	u, err := apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: o.namespace}.URL(o.cluster.BaseURL())
	if err != nil {
		return nil, err
	}
	u.RawQuery = url.Values{"limit": {strconv.Itoa(pageSize)}}.Encode()
	body, err := httpGet(ctx, o.cluster.HTTPClient(), u, asMetadata)
	if err != nil {
		return nil, err
	}
	page := new(metav1.PartialObjectMetadataList)
	return page, decode(body, page)
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
