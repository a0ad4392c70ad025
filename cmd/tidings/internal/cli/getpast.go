package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// pastTransport answers the requests of a builder for objects with their state at a
// moment. Other requests, which are those of discovery, go to the server as they are.
type pastTransport struct {
	next    http.RoundTripper
	cluster *cluster.Cluster
	at      read.Moment
	remarks *remarks
	several bool
	shown   func(time.Time) // is told the time of the moment
}

// Do is the request of askPast.
func (t *pastTransport) Do(req *http.Request) (*http.Response, error) { return t.next.RoundTrip(req) }

// RoundTrip implements [http.RoundTripper].
func (t *pastTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.cluster.BaseURL()
	of, ok := parseResourcePath(strings.TrimPrefix(req.URL.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/")))
	if !ok {
		return t.next.RoundTrip(req)
	}
	values, asked := url.Values{}, req.URL.Query()
	for _, name := range []string{"labelSelector", "fieldSelector", "limit", "continue"} {
		if value := asked.Get(name); value != "" {
			values.Set(name, value)
		}
	}
	if !values.Has("continue") { // the token has it
		values.Set("at", t.at.String())
	}
	path := []string{of.resource}
	switch {
	case of.name != "" && of.namespace != "":
		path = append(path, of.namespace, of.name)
	case of.name != "":
		path = append(path, of.name)
	case of.namespace != "":
		values.Set("namespace", of.namespace)
	}
	a, err := askPast(t, req.Context(), restURL(base, of.group, of.version, path, values), t.cluster.Name())
	var refusal *apierrors.StatusError
	if errors.As(err, &refusal) {
		if apierrors.IsNotFound(err) && of.name != "" && !strings.Contains(refusal.ErrStatus.Message, "history") {
			refusal = apierrors.NewNotFound(schema.GroupResource{Group: of.group, Resource: of.resource}, of.name)
		}
		refusal.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return respond(req, int(refusal.ErrStatus.Code), refusal.ErrStatus), nil
	}
	if err != nil {
		return nil, err
	}
	what := of.resource
	if t.several {
		what = t.cluster.Name() + ": " + what
	}
	t.remarks.moment(what, t.at, a.Moment)
	t.shown(a.Moment.Time)
	if of.name != "" {
		return respond(req, http.StatusOK, a.Data), nil
	}
	list := map[string]any{
		"apiVersion": "v1", "kind": "List", "items": a.Data,
		"metadata": map[string]any{"resourceVersion": a.ResourceVersion, "continue": a.Continue},
	}
	return respond(req, http.StatusOK, list), nil
}

// resourcePath is what a path of the Kubernetes API names.
type resourcePath struct{ group, version, namespace, resource, name string }

// parseResourcePath parses the escaped path of a list or an object. It returns false for
// other paths.
func parseResourcePath(path string) (of resourcePath, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		var err error
		if parts[i], err = url.PathUnescape(part); err != nil {
			return of, false
		}
	}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		of.version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		of.group, of.version, parts = parts[1], parts[2], parts[3:]
	default:
		return of, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		of.namespace, parts = parts[1], parts[2:]
	}
	of.resource = parts[0]
	if len(parts) > 1 {
		of.name = parts[1]
	}
	return of, len(parts) <= 2
}

// checkPast parses --at, and refuses what has no past. Of a folder the newest moment is
// shown if no other is asked for.
func (get *getter) checkPast(now time.Time) (err error) {
	offline := get.g.folder.dir != ""
	if get.at == "" && !offline {
		return nil
	}
	flag := "--" + cmp.Or(map[bool]string{true: "at"}[get.at != ""], "history")
	switch {
	case get.watching():
		return fmt.Errorf("%s shows the past, and --watch follows the present; \"tidings watch --since\" shows both, and \"tidings history\" each change", flag)
	case get.raw != "":
		return fmt.Errorf("%s is for resources; --raw asks for a path as it is, such as '/pods?at=-15m'", flag)
	case get.subresource != "":
		return fmt.Errorf("%s: of subresources there is no history", flag)
	}
	if err := get.g.noDemo(); err != nil {
		return err
	}
	if get.at != "" {
		var at read.Moment
		if at, err = parseAt("at", get.at, now); err == nil {
			get.moment, get.g.ofThePast = &at, true
		}
	}
	return err
}

// past makes the requests of a reader about the past.
func (get *getter) past(reader *clusterReader) {
	if get.moment == nil && get.g.folder.dir != "" {
		get.moment = &read.Moment{Time: get.g.folder.newest}
	}
	if get.moment == nil {
		return
	}
	told := &remarks{notice: get.g.screen.notice}
	reader.wrap = func(c *cluster.Cluster, next http.RoundTripper) http.RoundTripper {
		return &pastTransport{next: next, cluster: c, at: *get.moment, remarks: told, several: get.many, shown: func(t time.Time) {
			if get.clock = get.moment.Time; get.clock.IsZero() {
				get.clock = t
			}
		}}
	}
}

// now is the time by which ages are shown: that of the moment.
func (get *getter) now() time.Time {
	if get.clock.IsZero() {
		return time.Now()
	}
	return get.clock
}
