package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// A question is a request of HTTP as a message, and so is its answer: method, path, type of
// the body, status.
const (
	methodHeader  = "Tidings-Method"
	pathHeader    = "Tidings-Path"
	acceptHeader  = "Accept"
	contentHeader = "Content-Type"
	statusHeader  = "Tidings-Status"

	// plainText is the type of the content of a publisher's own answers.
	plainText = "text/plain; tidings"

	// Questions that are not for the API server. Each has the parameter feed.
	freshPath = "/tidings/fresh" // the resourceVersion that the cluster is at now
	// publishPath asks to publish a resource, with a snapshot that is announced by the
	// message of the log with the number in the parameter from, or a later one. It is refused if the
	// parameter epoch is not the publisher's epoch.
	publishPath = "/tidings/publish"
)

const (
	// answerPatience is how long an answer may take.
	answerPatience = 15 * time.Second
	// answersAtOnce bounds the questions about one cluster that are answered at the same time.
	answersAtOnce = 64
	// maxAnswer bounds the body of an answer.
	maxAnswer = 64 << 20
)

// mayAsk reports whether a publisher asks the API server a question for somebody else. It has
// the publisher's rights, so it must not read any object, nor change any.
func mayAsk(method, path string) bool {
	switch path {
	case "/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		return method == http.MethodPost
	case "/api", "/apis", "/version", "/readyz", "/openapi/v2", "/openapi/v3":
		return method == http.MethodGet
	}
	if method != http.MethodGet || strings.Contains(path, "..") || strings.Contains(path, "//") {
		return false
	}
	if strings.HasPrefix(path, "/openapi/v3/") {
		return true
	}
	// The documents of discovery: /api/VERSION, /apis/GROUP and /apis/GROUP/VERSION.
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "api" && len(parts) == 2 || parts[0] == "apis" && len(parts) <= 3
}

// isSelfReview reports whether a question is a caller's about their own rights. It is put with the
// caller's credentials only.
func isSelfReview(method, path string) bool {
	switch path {
	case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		return method == http.MethodPost
	}
	return false
}

// carried are the headers of a question that are passed on. Those of a caller's own question
// have the caller's credentials.
func carried(from map[string][]string, self bool) http.Header {
	out := http.Header{}
	for name, values := range from {
		if name == acceptHeader || name == contentHeader || self && (name == "Authorization" || strings.HasPrefix(name, "Impersonate-")) {
			out[name] = values
		}
	}
	return out
}

// anonymous returns a client without credentials of a cluster.
func anonymous(c *cluster.Cluster) (*http.Client, error) {
	config := c.Config()
	without := rest.AnonymousClientConfig(config)
	without.Transport = config.Transport
	return rest.HTTPClientFor(without)
}

// answer answers the questions about a cluster during a term.
func (c *published) answer(t *term) (stop func(), err error) {
	seats := make(chan struct{}, answersAtOnce)
	sub, err := c.nc.Subscribe(askSubject+token(c.name), func(m *nats.Msg) {
		select {
		case seats <- struct{}{}:
		default:
			_ = reply(m, http.StatusTooManyRequests, plainText, []byte("the publisher answers too many questions at the moment"), t.limit)
			return
		}
		go func() {
			defer func() { <-seats }()
			ctx, cancel := context.WithTimeout(t.ctx, answerPatience)
			defer cancel()
			status, kind, body := t.reply(ctx, m)
			if err := reply(m, status, kind, body, t.limit); err != nil {
				c.log.Warn("cannot answer a question of another mirror", "err", err)
			}
		}()
	})
	if err != nil {
		return nil, fmt.Errorf("answer questions about the cluster: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // the connection is gone otherwise
}

// reply answers in as many messages as it takes.
func reply(m *nats.Msg, status int, contentType string, body []byte, limit int) error {
	for {
		part := body[:min(len(body), limit)]
		body = body[len(part):]
		out := &nats.Msg{Subject: m.Reply, Data: part, Header: nats.Header{statusHeader: {strconv.Itoa(status)}, contentHeader: {contentType}}}
		if len(body) > 0 {
			out.Header.Set(moreHeader, "1")
		}
		if err := m.RespondMsg(out); err != nil || len(body) == 0 {
			return err
		}
	}
}

// reply returns the answer to a question.
func (t *term) reply(ctx context.Context, m *nats.Msg) (status int, contentType string, body []byte) {
	fail := func(status int, err error) (int, string, []byte) {
		return status, plainText, []byte(cluster.PublicMessage(err))
	}
	target, err := url.Parse(m.Header.Get(pathHeader))
	if err != nil {
		return fail(http.StatusBadRequest, err)
	}
	method := m.Header.Get(methodHeader)
	if strings.HasPrefix(target.Path, "/tidings/") {
		name, ok := feedOfToken(target.Query().Get("feed"))
		if !ok {
			return fail(http.StatusBadRequest, fmt.Errorf("%q names no resource", target.Query().Get("feed")))
		}
		if epoch := target.Query().Get("epoch"); epoch != "" && epoch != t.epoch {
			return fail(http.StatusConflict, fmt.Errorf("the log of cluster %s is another one", t.name))
		}
		from, _ := strconv.ParseUint(target.Query().Get("from"), 10, 64)
		version, status, err := t.own(ctx, target.Path, name, from)
		if err != nil {
			return fail(status, err)
		}
		return http.StatusOK, plainText, strconv.AppendUint(nil, version, 10)
	}
	self := isSelfReview(method, target.Path)
	if !self && !mayAsk(method, target.Path) || target.RawPath != "" {
		return fail(http.StatusForbidden, fmt.Errorf("a publisher does not ask its API server for %s %s", method, target.Path))
	}
	upstream := t.cluster.Connection().BaseURL().JoinPath(target.Path)
	upstream.RawQuery = target.RawQuery
	req, err := http.NewRequestWithContext(ctx, method, upstream.String(), bytes.NewReader(m.Data))
	if err != nil {
		return fail(http.StatusBadRequest, err)
	}
	req.Header = carried(m.Header, self)
	client := t.cluster.Connection().HTTPClient()
	if self {
		if req.Header.Get("Authorization") == "" {
			return fail(http.StatusForbidden, errors.New("a caller without a token cannot ask about their rights here"))
		}
		if client, err = anonymous(t.cluster.Connection()); err != nil {
			return fail(http.StatusBadGateway, err)
		}
		defer client.CloseIdleConnections()
	}
	resp, err := client.Do(req)
	if err != nil {
		return fail(http.StatusBadGateway, err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return fail(http.StatusBadGateway, err)
	}
	if name, ok := documentToken(method, target.Path, m.Header.Get(acceptHeader)); ok && resp.StatusCode == http.StatusOK && target.RawQuery == "" {
		if err := t.snapshots.keep(ctx, name, resp.Header.Get(contentHeader), body); err != nil {
			t.published.log.Warn("cannot keep a document of discovery", "err", err)
		}
	}
	return resp.StatusCode, resp.Header.Get(contentHeader), body
}

// own answers a question that is not for the API server.
func (t *term) own(ctx context.Context, path string, name feedName, from uint64) (version uint64, status int, err error) {
	f := t.feed(name)
	if why := t.refusal(name); why != "" {
		return 0, http.StatusForbidden, fmt.Errorf("%s of cluster %s cannot be published: %s", name, t.name, why)
	}
	if f == nil && path != publishPath { // not yet: a reader must not take it for an object that does not exist
		return 0, http.StatusServiceUnavailable, fmt.Errorf("%s of cluster %s are not published yet", name, t.name)
	}
	switch path {
	case freshPath:
		if version, err = t.opts.Fresh(ctx, f.inf); err != nil {
			return 0, http.StatusServiceUnavailable, err
		}
		return version, 0, nil
	case publishPath:
		r, err := t.cluster.ResourceFor(ctx, name.GroupVersionResource)
		if err == nil {
			_, err = t.cluster.Ready(ctx, r, name.Namespace)
		}
		if err != nil {
			return 0, unpublished(err), fmt.Errorf("%s of cluster %s cannot be published: %w", name, t.name, err)
		}
		if f != nil { // a new one makes a snapshot anyway
			f.ask(from)
		}
		return 0, 0, nil
	}
	return 0, http.StatusServiceUnavailable, fmt.Errorf("this publisher knows no question %s", path)
}

// unpublished is the status of the answer that a resource cannot be published. Only a refusal
// is final.
func unpublished(err error) int {
	switch mirror.ReasonOf(err) {
	case mirror.UnknownResource:
		return http.StatusNotFound
	case mirror.Forbidden, mirror.NotMirrored, mirror.Withheld, mirror.NotOffered:
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}
