package source

import (
	"context"
	"errors"
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
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// Kube is a Source that uses the Kubernetes API over HTTP. It reads bodies as they
// arrive: one object at a time is in memory, not the whole list.
type Kube[T any] struct {
	target Target
	client *http.Client
	base   *url.URL
	codec  codec.Codec[T]
	lookup Lookup[T] // nil for none
}

// Lookup returns the object with an identity if the store has it, so that it need not
// be decoded again.
type Lookup[T any] func(object.Identity) (T, bool)

// NewKube returns a source for a target of the server at base, which may have a path
// prefix. It decodes objects by c.
func NewKube[T any](client *http.Client, base *url.URL, target Target, c codec.Codec[T]) *Kube[T] {
	return &Kube[T]{target: target, client: client, base: base, codec: c}
}

// path returns the path of the target or, with a name, of one of its objects.
func (k *Kube[T]) path(name string) apipath.Path {
	r := k.target.Resource
	return apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: k.target.Namespace, Name: name}
}

// Reuse makes lists use the objects that lookup returns, instead of decoding them. It
// returns k.
func (k *Kube[T]) Reuse(lookup Lookup[T]) *Kube[T] {
	k.lookup = lookup
	return k
}

// Target returns what the source lists and watches.
func (k *Kube[T]) Target() Target { return k.target }

// List implements [Source].
func (k *Kube[T]) List(ctx context.Context, opts ListOptions, each func(T) error) (ListResult, error) {
	query := k.query()
	set(query, "resourceVersion", opts.ResourceVersion)
	set(query, "continue", opts.Continue)
	if opts.Limit > 0 {
		query.Set("limit", strconv.FormatInt(opts.Limit, 10))
	}
	body, format, err := k.get(ctx, "", query, k.codec.Accept(true))
	if err != nil {
		return ListResult{}, k.failed("list", err)
	}
	defer body.Close()
	var callback callbackError
	pipe := k.pipeline(format, func(o T) error { return callback.record(each(o)) })
	defer pipe.abandon()
	var meta metav1.ListMeta
	if format == codec.Protobuf {
		meta, err = readProtobufList(body, pipe.add)
	} else {
		meta, err = readJSONList(body, pipe.add)
	}
	if err == nil {
		err = pipe.drain()
	}
	if callback.err != nil {
		return ListResult{}, callback.err
	}
	if err != nil {
		return ListResult{}, k.failed("list", withCause(ctx, err))
	}
	result := ListResult{ResourceVersion: meta.ResourceVersion, Continue: meta.Continue, Remaining: -1}
	if meta.RemainingItemCount != nil {
		result.Remaining = *meta.RemainingItemCount
	} else if meta.Continue == "" {
		result.Remaining = 0
	}
	return result, nil
}

// Latest implements [Versioner] by a list with one object.
func (k *Kube[T]) Latest(ctx context.Context) (string, error) {
	result, err := k.List(ctx, ListOptions{Limit: 1}, func(T) error { return nil })
	return result.ResourceVersion, err
}

// errMarked ends a watch after its first bookmark.
var errMarked = errors.New("the watch has sent a bookmark")

// Current returns the present version of the server, like Latest, but without a list: by
// a watch of the initial events of no object. Servers that do not stream lists are asked
// for a list with one object.
func (k *Kube[T]) Current(ctx context.Context) (version string, err error) {
	const nothing = "metadata.name=tidings.none" // if there is such an object, it does no harm
	narrow := *k
	narrow.lookup = nil
	narrow.target.Fields = strings.TrimPrefix(narrow.target.Fields+","+nothing, ",")
	err = narrow.Watch(ctx, WatchOptions{InitialEvents: true, TimeoutSeconds: 5}, func(e Event[T]) error {
		if e.Type == Bookmark {
			version = e.ResourceVersion
			return errMarked
		}
		return nil
	})
	switch {
	case errors.Is(err, errMarked):
		return version, nil
	case err == nil, apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return k.Latest(ctx)
	}
	return "", err
}

// DecodeJSON calls each for objects, in the order of their encodings. next calls its
// argument for each encoding, which is only used during the call.
func (k *Kube[T]) DecodeJSON(next func(encoding func([]byte) error) error, each func(T) error) error {
	pipe := newPipeline(nil, func(raw []byte) (T, error) { return k.decode(codec.JSON, raw) }, each)
	defer pipe.abandon()
	if err := next(pipe.add); err != nil {
		return err
	}
	return pipe.drain()
}

// Get fetches one object.
func (k *Kube[T]) Get(ctx context.Context, name string) (T, error) {
	var none T
	body, format, err := k.get(ctx, name, url.Values{}, k.codec.Accept(false))
	if err != nil {
		return none, k.failed("get", err)
	}
	defer body.Close()
	raw, err := readAll(body)
	if err == nil && format == codec.Protobuf {
		_, raw, err = unwrapUnknown(raw)
	}
	if err != nil {
		return none, k.failed("get", withCause(ctx, err))
	}
	object, err := k.decode(format, raw)
	if err != nil {
		return none, k.failed("get", err)
	}
	return object, nil
}

// Watch implements [Source].
func (k *Kube[T]) Watch(ctx context.Context, opts WatchOptions, each func(Event[T]) error) error {
	query := k.query()
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	set(query, "resourceVersion", opts.ResourceVersion)
	if opts.InitialEvents {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	if opts.TimeoutSeconds > 0 {
		query.Set("timeoutSeconds", strconv.FormatInt(opts.TimeoutSeconds, 10))
	}
	body, format, err := k.get(ctx, "", query, k.codec.Accept(false))
	if err != nil {
		return k.failed("watch", err)
	}
	defer body.Close()
	if opts.Accepted != nil {
		opts.Accepted()
	}
	var callback callbackError
	initial := opts.InitialEvents
	pipe := k.pipeline(format, func(o T) error { return callback.record(each(Event[T]{Type: Added, Object: o})) })
	defer pipe.abandon()
	visit := func(kind string, raw []byte) error {
		if initial {
			if kind == "ADDED" {
				return pipe.add(raw)
			}
			if err := pipe.drain(); err != nil {
				return err
			}
		}
		event, err := k.event(format, kind, raw)
		if err != nil {
			return err
		}
		initial = initial && !event.InitialEventsEnd // no object after it is in the store
		return callback.record(each(event))
	}
	if format == codec.Protobuf {
		err = readProtobufWatch(body, visit, pipe.idle)
	} else {
		err = readJSONWatch(body, visit, pipe.idle)
	}
	if err == nil {
		err = pipe.drain()
	}
	switch {
	case callback.err != nil:
		return callback.err
	case err != nil:
		return k.failed("watch", withCause(ctx, err))
	}
	return nil
}

// pipeline decodes the objects of a list, except for those that lookup returns.
func (k *Kube[T]) pipeline(format codec.Format, each func(T) error) *pipeline[T] {
	var lookup func([]byte) (T, bool)
	if k.lookup != nil {
		lookup = func(raw []byte) (o T, ok bool) {
			id, ok := codec.Peek(format, raw)
			if !ok {
				return o, false
			}
			return k.lookup(id)
		}
	}
	return newPipeline(lookup, func(raw []byte) (T, error) { return k.decode(format, raw) }, each)
}

// decode decodes an object.
func (k *Kube[T]) decode(format codec.Format, raw []byte) (T, error) {
	object, err := k.codec.Decode(format, raw)
	if err != nil {
		return object, &DecodeError{err}
	}
	return object, nil
}

// event decodes one frame of a watch.
func (k *Kube[T]) event(format codec.Format, kind string, raw []byte) (Event[T], error) {
	var event Event[T]
	switch kind {
	case "ADDED":
		event.Type = Added
	case "MODIFIED":
		event.Type = Modified
	case "DELETED":
		event.Type = Deleted
	case "BOOKMARK":
		var mark metav1.PartialObjectMetadata // has the metadata of any kind
		if err := decodeMeta(format, raw, &mark); err != nil {
			return event, fmt.Errorf("decode a bookmark: %w", err)
		}
		event.Type = Bookmark
		event.ResourceVersion = mark.ResourceVersion
		event.InitialEventsEnd = mark.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return event, nil
	case "ERROR":
		var status metav1.Status
		if err := decodeMeta(format, raw, &status); err != nil {
			return event, fmt.Errorf("decode an error event: %w", err)
		}
		return event, failure(status)
	default:
		return event, fmt.Errorf("unknown watch event type %.40q", kind)
	}
	object, err := k.decode(format, raw)
	event.Object = object
	return event, err
}

// query returns the parameters of all requests for the target.
func (k *Kube[T]) query() url.Values {
	query := url.Values{}
	set(query, "labelSelector", k.target.Labels)
	set(query, "fieldSelector", k.target.Fields)
	return query
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// get sends a request. It returns the body of a 200 answer, and the Status of any
// other as an error.
func (k *Kube[T]) get(ctx context.Context, name string, query url.Values, accept string) (io.ReadCloser, codec.Format, error) {
	u, err := k.path(name).URL(k.base)
	if err != nil {
		return nil, 0, err
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", accept)
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, 0, withCause(ctx, err)
	}
	format, err := formatOf(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, 0, statusError(resp, format)
	}
	if err != nil {
		resp.Body.Close()
		return nil, 0, err
	}
	return resp.Body, format, nil
}

func formatOf(contentType string) (codec.Format, error) {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, fmt.Errorf("the server answered with content type %.80q, which cannot be read: %w", contentType, err)
	}
	switch media {
	case "application/json":
		return codec.JSON, nil
	case "application/vnd.kubernetes.protobuf":
		return codec.Protobuf, nil
	}
	return 0, fmt.Errorf("the server answered with content type %q, neither Kubernetes JSON nor protobuf: is it an API server?", media)
}

// statusError returns the error in an answer that is not 200.
func statusError(resp *http.Response, format codec.Format) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var status metav1.Status
	raw := body
	var err error
	if format == codec.Protobuf {
		_, raw, err = unwrapUnknown(body)
	}
	if err == nil {
		err = decodeMeta(format, raw, &status)
	}
	retryAfter, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || status.Status != metav1.StatusFailure {
		message := strings.TrimSpace(string(body))
		if len(message) > 512 {
			message = message[:512] + "…"
		}
		return apierrors.NewGenericServerResponse(resp.StatusCode, "", schema.GroupResource{}, "", message, retryAfter, true)
	}
	if retryAfter > 0 {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		if status.Details.RetryAfterSeconds == 0 {
			status.Details.RetryAfterSeconds = int32(min(retryAfter, 1<<30))
		}
	}
	return failure(status)
}

// failure returns a Status as an error, with a message if it has none.
func failure(status metav1.Status) error {
	if status.Message == "" {
		status.Message = fmt.Sprintf("the server reported an error without a message (code %d, reason %q)", status.Code, status.Reason)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// failed adds verb and target to an error.
func (k *Kube[T]) failed(verb string, err error) error {
	return &Error{Target: k.target, Verb: verb, Err: err}
}

// withCause returns the cause of ctx's end if it has ended, and err otherwise: err is
// only a consequence then.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// callbackError records an error of the caller's callback, to distinguish it from
// errors of the stream.
type callbackError struct{ err error }

func (c *callbackError) record(err error) error {
	c.err = err
	return err
}
