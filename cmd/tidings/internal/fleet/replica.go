package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// replica answers the requests for a cluster from its streams. It implements
// [http.RoundTripper] and [mirror.Origin].
type replica struct {
	*Follower
	name string
	slog *slog.Logger
	log  *logReader
	stop func() // ends the reading of the log

	mu    sync.Mutex
	feeds map[feedName]*followed
}

var _ mirror.Origin = (*replica)(nil)

func newReplica(ctx context.Context, f *Follower, name string) *replica {
	r := &replica{Follower: f, name: name, slog: f.log.With("cluster", name), feeds: map[feedName]*followed{}}
	r.log = newLogReader(ctx, r)
	return r
}

// followed is where the reader of a feed is.
type followed struct {
	name feedName

	mu    sync.Mutex
	marks []mark // the newest, oldest first
	bad   string // id of a snapshot that cannot be read
}

// mark says that everything after a resourceVersion comes after a position.
type mark struct {
	version uint64
	at      position
}

// maxMarks is how far a reader may be behind what was read for it.
const maxMarks = 256

func (f *followed) set(marks ...mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marks = marks
}

func (f *followed) add(m mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.marks = append(f.marks, m); len(f.marks) > maxMarks {
		f.marks = append(f.marks[:0:0], f.marks[len(f.marks)-maxMarks/2:]...)
	}
}

// spoil says that a snapshot cannot be read.
func (f *followed) spoil(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad = id
}

// broken returns the id of the last snapshot that could not be read, "" if there was none.
func (f *followed) broken() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad
}

// before returns the newest mark that is not after a version.
func (f *followed) before(version uint64) (found mark, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.marks {
		if m.version <= version {
			found, ok = m, true
		}
	}
	return found, ok
}

func (r *replica) feed(name feedName) *followed {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.feeds[name]
	if f == nil {
		f = &followed{name: name}
		r.feeds[name] = f
	}
	return f
}

// follows reports whether a feed was ever read.
func (r *replica) follows(name feedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feeds[name] != nil
}

// RoundTrip implements [http.RoundTripper].
func (r *replica) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	answer := func(resp *http.Response, err error) (*http.Response, error) {
		if s := (*statusError)(nil); errors.As(err, &s) {
			resp, err = s.response(), nil
		}
		if err == nil {
			resp.Request = req
		}
		return resp, err
	}
	path, query := req.URL.Path, req.URL.Query()
	switch name, object, ok := parsePath(path); {
	case mayAsk(req.Method, path), isSelfReview(req.Method, path):
		return answer(r.forward(req))
	case !ok || !name.valid() || object != "" || req.Method != http.MethodGet || query.Get("labelSelector") != "":
	case query.Get("sendInitialEvents") != "":
		return answer(nil, &statusError{http.StatusUnprocessableEntity, "a replica does not stream lists"})
	case query.Get("fieldSelector") != "":
	case query.Get("watch") != "":
		return answer(r.watch(req.Context(), name, query))
	case query.Get("limit") == "1": // it is the version that is wanted
		version, err := r.fresh(req.Context(), name)
		if err != nil {
			return answer(nil, err)
		}
		list := fmt.Sprintf(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, version)
		return answer(response(http.StatusOK, "application/json", io.NopCloser(strings.NewReader(list))), nil)
	default:
		return answer(r.list(req.Context(), name))
	}
	return answer(nil, &statusError{http.StatusForbidden, fmt.Sprintf("this mirror follows cluster %s on NATS, where only whole resources can be read: ask a mirror that is connected to the cluster", r.name)})
}

// parsePath returns the resource of a path of the Kubernetes API.
func parsePath(path string) (name feedName, object string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		name.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		name.Group, name.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return name, "", false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		name.Namespace, parts = parts[1], parts[2:]
	}
	name.Resource = parts[0]
	if len(parts) > 1 {
		object = strings.Join(parts[1:], "/")
	}
	return name, object, true
}

// Problem implements [mirror.Origin].
func (r *replica) Problem(ctx context.Context) error {
	select {
	case <-r.log.known:
	case <-ctx.Done():
	}
	if problem := r.log.problem(); problem != "" {
		return errors.New(problem)
	}
	return nil
}

// Fresh implements [mirror.Origin].
func (r *replica) Fresh(ctx context.Context, gvr schema.GroupVersionResource, namespace string) (resourceVersion uint64, err error) {
	return r.fresh(ctx, feedName{gvr, namespace})
}

func (r *replica) fresh(ctx context.Context, name feedName) (uint64, error) {
	body, err := r.askOwn(ctx, freshPath, name, url.Values{})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(body), 10, 64)
}

// list answers with the newest snapshot.
func (r *replica) list(ctx context.Context, name feedName) (*http.Response, error) {
	h, err := r.head(ctx, name)
	if err != nil {
		return nil, err
	}
	body := r.openSnapshot(ctx, name, h)
	r.feed(name).set(mark{h.version(), h.position})
	return response(http.StatusOK, "application/json", body), nil
}

const (
	// headPatience is how long a list waits for a snapshot that it can use.
	headPatience = 15 * time.Second
	headPause    = 250 * time.Millisecond
	// headAgain is how long an answered question for a snapshot is not repeated.
	headAgain = 5 * time.Second
)

// head returns what the newest snapshot of a feed is, once there is one from which the log
// goes on.
func (r *replica) head(ctx context.Context, name feedName) (head, error) {
	ctx, cancel := context.WithTimeout(ctx, headPatience)
	defer cancel()
	var asked time.Time
	for {
		h, unusable, err := r.newestHead(ctx, name)
		if err == nil && unusable == nil {
			return h, nil
		}
		if unusable != nil {
			err = unusable
			if unusable.epoch != "" && (unusable.from == 0 || time.Since(asked) > headAgain) {
				from := strconv.FormatUint(unusable.from, 10)
				switch _, failed := r.askOwn(ctx, publishPath, name, url.Values{"from": {from}, "epoch": {unusable.epoch}}); {
				case failed == nil && unusable.from == 0:
					r.log.trust(unusable.epoch)
					continue
				case failed == nil:
					asked = time.Now()
				case isRefusal(failed):
					return h, failed
				default:
					err = fmt.Errorf("%w; %w", unusable, failed)
				}
			}
		}
		select {
		case <-time.After(headPause):
		case <-ctx.Done():
			return h, &statusError{http.StatusServiceUnavailable, fmt.Sprintf("%s of cluster %s: %v", name, r.name, err)}
		}
	}
}

// isRefusal reports whether a publisher has said that a resource cannot be published.
func isRefusal(err error) bool {
	s := (*statusError)(nil)
	return errors.As(err, &s) && (s.code == http.StatusForbidden || s.code == http.StatusNotFound)
}

// unusableError says why the newest snapshot cannot be used.
type unusableError struct {
	why string
	// epoch, if not empty, is what the publisher is to be asked about: for a snapshot that is announced by
	// the message with the number from, or a later one, or just to confirm the epoch if from is 0.
	epoch string
	from  uint64
}

func (e *unusableError) Error() string { return e.why }

// newestHead returns the newest head of a feed, and why it cannot be used, if so.
func (r *replica) newestHead(ctx context.Context, name feedName) (h head, unusable *unusableError, err error) {
	at, gap, trusted := r.log.state()
	switch at.Epoch {
	case "":
		return h, &unusableError{"the log of the cluster could not be read yet", "", 0}, nil
	case trusted:
	default:
		return h, &unusableError{"the publisher has not confirmed that the log is its own, and not an old one", at.Epoch, 0}, nil
	}
	msg, err := r.last(ctx, snapshotsStream, snapshotsSubject+token(r.name)+"."+name.token()+".head")
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return h, &unusableError{"it is not published", at.Epoch, at.Number}, nil
	}
	if err != nil {
		return h, nil, err
	}
	if err := parseHead(msg.Data, &h); err != nil {
		return h, &unusableError{"the newest snapshot: " + err.Error(), at.Epoch, at.Number}, nil
	}
	switch reset := r.log.reset(name); {
	case h.Epoch != at.Epoch:
		return h, &unusableError{"the newest snapshot is of another publisher", at.Epoch, 1}, nil
	case h.Epoch == gap.Epoch && h.Number < gap.Number:
		return h, &unusableError{"messages of the log are missing since the newest snapshot", at.Epoch, gap.Number}, nil
	case h.Epoch == reset.Epoch && h.Number < reset.Number:
		return h, &unusableError{"the newest snapshot is too old", at.Epoch, reset.Number}, nil
	case h.ID == r.feed(name).broken():
		return h, &unusableError{"the newest snapshot is not complete", at.Epoch, h.Number + 1}, nil
	}
	stream, err := r.js.Stream(ctx, logStream+token(r.name))
	if err != nil {
		return h, nil, err
	}
	begins, err := stream.GetMsg(ctx, h.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && begins.Header.Get(jetstream.MsgIDHeader) != h.id() {
		return h, &unusableError{"the log does not reach back to the newest snapshot", at.Epoch, h.Number + 1}, nil
	}
	return h, nil, err
}

// last returns the last message of a subject.
func (r *replica) last(ctx context.Context, prefix, subject string) (*jetstream.RawStreamMsg, error) {
	stream, err := r.js.Stream(ctx, prefix+token(r.name))
	if err != nil {
		return nil, err
	}
	return stream.GetLastMsgForSubject(ctx, subject)
}

// watch answers with the events of a feed after a version.
func (r *replica) watch(ctx context.Context, name feedName, query url.Values) (*http.Response, error) {
	version, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, "a watch needs the resourceVersion of a list"}
	}
	if why := r.log.stale(name); why != "" {
		return nil, &statusError{http.StatusServiceUnavailable, fmt.Sprintf("the publisher's %s are out of date: %s", name, why)}
	}
	f := r.feed(name)
	from, ok := f.before(version)
	if !ok { // begin with the newest snapshot, if it is not newer
		h, err := r.head(ctx, name)
		if err != nil {
			return nil, err
		}
		if h.version() > version {
			return nil, &statusError{http.StatusGone, fmt.Sprintf("the log of cluster %s does not reach back to the resourceVersion %d of %s", r.name, version, name)}
		}
		from = mark{h.version(), h.position}
		f.set(from)
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	body := newWatchBody(ctx, r.log, f, version, time.Duration(seconds)*time.Second)
	r.log.join(body, from.at)
	return response(http.StatusOK, "application/json", body), nil
}

// response is an answer with a body.
func response(status int, contentType string, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{contentHeader: {contentType}}, Body: body, ContentLength: -1,
	}
}

// statusError is an error that is answered as a Status of the Kubernetes API.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return e.message }

// Status implements apierrors.APIStatus.
func (e *statusError) Status() metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(e.code), Reason: reasons[e.code], Message: e.message,
	}
}

func (e *statusError) response() *http.Response {
	text, _ := json.Marshal(e.Status()) // of strings: cannot fail
	return response(e.code, "application/json", io.NopCloser(strings.NewReader(string(text))))
}
