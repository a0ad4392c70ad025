package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mirrored is a client of the plain routes of "tidings serve".
type mirrored struct {
	client *http.Client
	base   *url.URL
	say    func(progress string)
}

// answerOfServer is what those routes answer with: the one or the other half.
type answerOfServer struct {
	Data      json.RawMessage `json:"data"`
	Continue  string          `json:"continue"`
	Remaining *int64          `json:"remaining"`

	Error    string   `json:"error"`
	Reason   string   `json:"reason"`
	Exists   []string `json:"exists"`
	Progress *struct {
		Received int64  `json:"received"`
		Expected *int64 `json:"expected"`
	} `json:"progress"`
}

// fromServer asks a running server.
func (get *getter) fromServer(ctx context.Context, wanted []wish) ([]batch, error) {
	m, err := get.connect()
	if err != nil {
		return nil, err
	}
	defer m.client.CloseIdleConnections()
	clusters, err := m.clusters(ctx, get.g.contexts)
	if err != nil {
		return nil, err
	}
	if err := get.several(len(clusters)); err != nil {
		return nil, err
	}
	var batches []batch
	var errs []error
	for _, c := range clusters {
		for _, w := range wanted {
			b, err := get.list(ctx, m, c, w)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			batches = append(batches, b)
		}
	}
	return batches, errors.Join(errs...)
}

// connect reads --server; it needs no network.
func (get *getter) connect() (*mirrored, error) {
	address := get.server
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--server %s: say it like http://127.0.0.1:8888", get.server)
	}
	return &mirrored{
		client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		base:   base, say: get.g.screen.showProgress,
	}, nil
}

// clusters are the clusters meant; "" is the server's default.
func (m *mirrored) clusters(ctx context.Context, contexts []string) ([]string, error) {
	if !slices.Contains(contexts, "*") {
		if len(contexts) == 0 {
			return []string{""}, nil
		}
		return contexts, nil
	}
	a, err := m.ask(ctx, nil, "clusters")
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name string `json:"name"`
	}
	if err := decode(a.Data, &list); err != nil {
		return nil, fmt.Errorf("read the clusters of %s: %w", m.base.Redacted(), err)
	}
	var out []string
	for _, c := range list {
		out = append(out, c.Name)
	}
	return out, nil
}

// list fetches all pages of what is wanted of one cluster.
func (get *getter) list(ctx context.Context, m *mirrored, cluster string, w wish) (batch, error) {
	path := []string{w.resource}
	if cluster != "" {
		path = []string{"clusters", cluster, w.resource}
	}
	o := objects{name: w.name}
	values := url.Values{"limit": {strconv.Itoa(pageSize)}}
	b := batch{cluster: cluster, resource: w.resource}
	switch {
	case get.g.namespace != "":
		b.namespace = get.g.namespace
	case !get.g.allNamespaces:
		b.namespace = "default"
	}
	for key, value := range map[string]string{
		"namespace": b.namespace, "labelSelector": get.g.selector, "fieldSelector": o.fieldSelector(get.g.fieldSelector),
	} {
		if value != "" {
			values.Set(key, value)
		}
	}
	for {
		a, err := m.ask(ctx, values, path...)
		var refused *serverError
		if errors.As(err, &refused) && refused.reason == "Invalid" && values.Has("namespace") {
			// Resources that are not namespaced may not be asked for with one.
			// If something else is wrong, it still is without.
			values.Del("namespace")
			b.namespace = ""
			a, err = m.ask(ctx, values, path...)
		}
		if err != nil {
			return b, err
		}
		var items []map[string]any
		if err := decode(a.Data, &items); err != nil {
			return b, fmt.Errorf("read the answer of %s for %s: %w", m.base.Redacted(), w.resource, err)
		}
		for i, item := range items {
			if item == nil {
				return b, fmt.Errorf("read the answer of %s for %s: object %d is null", m.base.Redacted(), w.resource, i)
			}
			b.objects = append(b.objects, &unstructured.Unstructured{Object: item})
		}
		if a.Continue == "" {
			break
		}
		values.Set("continue", a.Continue)
		c := count{received: int64(len(b.objects)), expected: -1}
		if a.Remaining != nil {
			c.expected = c.received + *a.Remaining
		}
		m.say(progressLine(w.resource, []count{c}))
	}
	if len(b.objects) == 0 && w.name != "" {
		where := ""
		if b.namespace != "" {
			where = " in namespace " + b.namespace
		}
		return b, fmt.Errorf("%s has no %s %q%s", m.base.Redacted(), w.resource, w.name, where)
	}
	for _, u := range b.objects {
		gvk := u.GroupVersionKind()
		b.resource, b.kind = gvk.String(), kindName(gvk.Kind, gvk.Group)
		b.namespaced = b.namespaced || u.GetNamespace() != ""
	}
	var err error
	b.page, err = tableOfObjects(b.objects, get.output == "wide")
	return b, err
}

// serverError is a refusal that the server explains.
type serverError struct{ reason, text string }

func (e *serverError) Error() string { return e.text }

// ask makes one request. While the server is still getting the first list of
// what is asked for, and getting on with it, ask asks again.
func (m *mirrored) ask(ctx context.Context, values url.Values, path ...string) (*answerOfServer, error) {
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	u := m.base.JoinPath(escaped...)
	u.RawQuery = values.Encode()
	for before := int64(-1); ; {
		a, wait, err := m.try(ctx, u)
		if err == nil || a == nil || a.Progress == nil || a.Progress.Received <= before {
			return a, err
		}
		before = a.Progress.Received
		c := count{received: before, expected: -1}
		if a.Progress.Expected != nil {
			c.expected = *a.Progress.Expected
		}
		m.say(progressLine("mirroring "+path[len(path)-1], []count{c}))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// try makes one request; wait is how long the server wants to be left alone.
func (m *mirrored) try(ctx context.Context, u *url.URL) (a *answerOfServer, wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("ask %s: %w; is \"tidings serve\" running there?", m.base.Redacted(), err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, fmt.Errorf("read the answer of %s: %w", m.base.Redacted(), err)
	}
	a = &answerOfServer{}
	if err := decode(body, a); err != nil || a.Data == nil && a.Error == "" {
		return nil, 0, fmt.Errorf("%s answered %s with something else than \"tidings serve\" would: is that the right address?", m.base.Redacted(), resp.Status)
	}
	if resp.StatusCode == http.StatusOK {
		return a, 0, nil
	}
	text := a.Error
	if unsaid := slices.DeleteFunc(a.Exists, func(s string) bool { return strings.Contains(text, s) }); len(unsaid) > 0 && len(unsaid) <= 20 {
		text += " (there is: " + strings.Join(unsaid, ", ") + ")"
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return a, time.Duration(max(seconds, 1)) * time.Second, &serverError{a.Reason, m.base.Redacted() + ": " + text}
}
