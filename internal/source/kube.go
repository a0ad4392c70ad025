package source

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/apipath"
	"github.com/tidings-io/tidings/internal/codec"
)

// Kube is a Source that speaks the Kubernetes API over HTTP. Bodies are read
// as they arrive: an object at a time is in memory, not a list.
type Kube[T any] struct {
	target Target
	client *http.Client
	base   *url.URL
	codec  codec.Codec[T]
	held   Held[T]
}

// Held gives the object with an identity if it is at hand already, so that it
// need not be decoded again.
type Held[T any] func(codec.Identity) (T, bool)

// NewKube returns a source for target behind the server at base, which may
// have a path prefix. Objects are made by c.
func NewKube[T any](client *http.Client, base *url.URL, target Target, c codec.Codec[T]) *Kube[T] {
	return &Kube[T]{target: target, client: client, base: base, codec: c}
}

// path is that of the target or, with a name, of one object of it.
func (k *Kube[T]) path(name string) apipath.Path {
	r := k.target.Resource
	return apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: k.target.Namespace, Name: name}
}

// Reuse makes lists take objects from held where it has them, instead of
// decoding them again. It returns k.
func (k *Kube[T]) Reuse(held Held[T]) *Kube[T] {
	k.held = held
	return k
}

// Target says what the source is for.
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
	var seen callerError
	pipe := k.pipeline(format, func(o T) error { return seen.note(each(o)) })
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
	if seen.err != nil {
		return ListResult{}, seen.err
	}
	if err != nil {
		return ListResult{}, k.failed("list", cut(ctx, err))
	}
	result := ListResult{ResourceVersion: meta.ResourceVersion, Continue: meta.Continue, Remaining: -1}
	if meta.RemainingItemCount != nil {
		result.Remaining = *meta.RemainingItemCount
	} else if meta.Continue == "" {
		result.Remaining = 0
	}
	return result, nil
}

// Latest implements [Dated], by a list of one object.
func (k *Kube[T]) Latest(ctx context.Context) (string, error) {
	result, err := k.List(ctx, ListOptions{Limit: 1}, func(T) error { return nil })
	return result.ResourceVersion, err
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
		return none, k.failed("get", cut(ctx, err))
	}
	object, err := k.changed(format, raw)
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
	var seen callerError
	initial := opts.InitialEvents
	pipe := k.pipeline(format, func(o T) error { return seen.note(each(Event[T]{Type: Added, Object: o})) })
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
		initial = initial && !event.InitialEventsEnd // from there on everything is news
		return seen.note(each(event))
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
	case seen.err != nil:
		return seen.err
	case err != nil:
		return k.failed("watch", cut(ctx, err))
	}
	return nil
}

// pipeline makes the objects of a list: those that are held are not decoded again.
func (k *Kube[T]) pipeline(format codec.Format, each func(T) error) *pipeline[T] {
	var held func([]byte) (T, bool)
	if k.held != nil {
		held = func(raw []byte) (o T, ok bool) {
			id, ok := codec.Peek(format, raw)
			if !ok {
				return o, false
			}
			return k.held(id)
		}
	}
	return newPipeline(held, func(raw []byte) (T, error) { return k.changed(format, raw) }, each)
}

// changed is an object that is news.
func (k *Kube[T]) changed(format codec.Format, raw []byte) (T, error) {
	object, err := k.codec.Decode(format, raw)
	if err != nil {
		return object, &DecodeError{err}
	}
	return object, nil
}

// event makes sense of one frame of a watch.
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
		var mark metav1.PartialObjectMetadata // the metadata of any kind reads as this
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
	object, err := k.changed(format, raw)
	event.Object = object
	return event, err
}

// query holds what every request to this target carries.
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

// get sends a request and returns the body of a good answer, or the Status of
// a bad one as an error.
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
		return nil, 0, cut(ctx, err)
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

// statusError makes an error of an answer that is not 200.
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
		generic := apierrors.NewGenericServerResponse(resp.StatusCode, "", schemaless, "", message, retryAfter, true)
		return generic
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

// failure makes an error of a Status, which may have left out what to say.
func failure(status metav1.Status) error {
	if status.Message == "" {
		status.Message = fmt.Sprintf("the server reported an error without a message (code %d, reason %q)", status.Code, status.Reason)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// failed wraps an error with what was being done to which resource.
func (k *Kube[T]) failed(verb string, err error) error {
	return &Error{Target: k.target, Verb: verb, Err: err}
}

// cut prefers the reason a context was ended for over what the ending broke.
func cut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// callerError remembers an error of the caller's function, to be told from
// those of the stream.
type callerError struct{ err error }

func (c *callerError) note(err error) error {
	c.err = err
	return err
}
