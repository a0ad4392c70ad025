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
	"time"

	"github.com/nats-io/nats.go"
)

// maxQuestion bounds the body of a question.
const maxQuestion = 512 << 10

// askAgain is how long an answer to an own question may take before the question is sent again:
// it is lost if a connection breaks. The answer is one message, so that two do no harm.
const askAgain = 2 * time.Second

// askOwn asks the publisher about a feed.
func (r *replica) askOwn(ctx context.Context, path string, name feedName, query url.Values) ([]byte, error) {
	query.Set("feed", name.token())
	status, _, body, err := r.ask(ctx, http.MethodGet, path+"?"+query.Encode(), nats.Header{}, nil, askAgain)
	if err == nil && status != http.StatusOK {
		err = &statusError{status, string(body)}
	}
	return body, err
}

// forward puts a question to the API server: directly if that is possible, or else through the
// publisher. While neither is there, the documents of discovery are what they were.
func (r *replica) forward(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(io.LimitReader(req.Body, maxQuestion)); err != nil {
			return nil, err
		}
	}
	if direct := r.direct(); direct != nil {
		resp, err := direct.do(req, body)
		if err == nil {
			return resp, nil
		}
		if req.Context().Err() != nil {
			return nil, err
		}
		r.slog.Debug("the API server cannot be asked directly; asking its publisher", "err", err)
	}
	header := nats.Header(carried(req.Header, isSelfReview(req.Method, req.URL.Path)))
	status, contentType, answer, err := r.ask(req.Context(), req.Method, req.URL.RequestURI(), header, body, answerPatience)
	if err == nil && contentType == plainText && status >= 400 {
		err = &statusError{status, string(answer)}
	}
	if name, ok := documentToken(req.Method, req.URL.Path, req.Header.Get(acceptHeader)); ok && isUnavailable(err) {
		if kind, document, keptErr := r.kept(req.Context(), name); keptErr == nil {
			status, contentType, answer, err = http.StatusOK, kind, document, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return response(status, contentType, io.NopCloser(bytes.NewReader(answer))), nil
}

func isUnavailable(err error) bool {
	s := (*statusError)(nil)
	return errors.As(err, &s) && (s.code == http.StatusServiceUnavailable || s.code == http.StatusBadGateway)
}

// ask asks the publisher of the cluster, and asks again whenever there is no answer for a time.
func (r *replica) ask(ctx context.Context, method, path string, header nats.Header, body []byte, again time.Duration) (status int, contentType string, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, "", nil, r.unasked(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	header.Set(methodHeader, method)
	header.Set(pathHeader, path)
	question := &nats.Msg{Subject: askSubject + token(r.name), Reply: inbox, Header: header, Data: body}
	if err := r.nc.PublishMsg(question); err != nil {
		return 0, "", nil, r.unasked(err)
	}
	for {
		limited, cancel := context.WithTimeout(ctx, again)
		m, err := sub.NextMsgWithContext(limited)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if err = r.nc.PublishMsg(question); err == nil {
				continue
			}
		}
		if err == nil && len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			err = nats.ErrNoResponders
		}
		if err != nil {
			return 0, "", nil, r.unasked(err)
		}
		if answer = append(answer, m.Data...); len(answer) > maxAnswer {
			return 0, "", nil, r.unasked(errors.New("the answer is too long"))
		}
		if m.Header.Get(moreHeader) == "" {
			status, err := strconv.Atoi(m.Header.Get(statusHeader))
			if err != nil {
				return 0, "", nil, r.unasked(err)
			}
			return status, m.Header.Get(contentHeader), answer, nil
		}
	}
}

func (r *replica) unasked(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		err = errors.New("it is not there")
	}
	return &statusError{http.StatusServiceUnavailable, fmt.Sprintf("the publisher of cluster %s cannot be asked: %v", r.name, err)}
}
