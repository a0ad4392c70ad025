package source_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/source"
)

// failure is a Status as a server sends it.
func failure(err *apierrors.StatusError) *metav1.Status {
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

func join(frames ...[]byte) (out []byte) {
	for _, f := range frames {
		out = append(out, f...)
	}
	return out
}

func TestWatchesInEveryEncoding(t *testing.T) {
	one, two, gone := makeConfigMap(1), makeConfigMap(2), makeConfigMap(3)
	for _, w := range wires {
		body := join(
			w.frame("ADDED", w.single(one)), w.bookmark("110", map[string]string{metav1.InitialEventsAnnotationKey: "true"}),
			w.frame("MODIFIED", w.single(two)), w.bookmark("120", nil), w.frame("DELETED", w.single(gone)),
		)
		for _, keep := range w.keeps {
			t.Run(w.name+" as "+keep.name, func(t *testing.T) {
				want := []source.Event[kept]{
					{Type: source.Added, Object: keep.want(one)},
					{Type: source.Bookmark, ResourceVersion: "110", InitialEventsEnd: true},
					{Type: source.Modified, Object: keep.want(two)},
					{Type: source.Bookmark, ResourceVersion: "120"},
					{Type: source.Deleted, Object: keep.want(gone)},
				}
				for _, initial := range []bool{false, true} {
					got, err := keep.watch(t.Context(), w.answer(body), configMaps, source.WatchOptions{InitialEvents: initial})
					if err != nil || !reflect.DeepEqual(got, want) {
						t.Errorf("initial %v: watched\n%v, not\n%v: %v", initial, got, want, err)
					}
				}
			})
		}
	}
}

// An ERROR event returns the server's Status, in any encoding, after the events before
// it have been delivered.
func TestErrorEvents(t *testing.T) {
	for _, w := range wires {
		body := join(w.frame("ADDED", w.single(makeConfigMap(1))), w.frame("ERROR", failure(apierrors.NewResourceExpired("too old resource version: 5 (9)"))))
		got, err := w.keeps[0].watch(t.Context(), w.answer(body), configMaps, source.WatchOptions{})
		if len(got) != 1 || !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), "watch configmaps of cluster test: too old resource version: 5 (9)") {
			t.Errorf("%s: after %d events: %v", w.name, len(got), err)
		}
	}
	// An ERROR event without a Status also returns an error with a message.
	for _, body := range []string{`{"type":"ERROR","object":{}}`, `{"type":"ERROR","object":null}`, `{"type":"ERROR"}`, `{"type":"ERROR","object":"out of order"}`} {
		_, err := typed.watch(t.Context(), wires[0].answer([]byte(body)), configMaps, source.WatchOptions{})
		if err == nil || strings.HasSuffix(strings.TrimSpace(err.Error()), ":") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// An answer that is not a watch is an error, not the end of a watch.
func TestNotAWatch(t *testing.T) {
	for _, body := range []string{
		`null`, `[]`, `5`, `{}`, `{"type":"ADDED"}`, `{"type":"ADDED","object":null}`, `{"type":"ADDED","object":[]}`, `{"type":"SHIFTED","object":{}}`,
		`{"object":{"metadata":{"name":"a"}}}`, `{"type":"BOOKMARK","object":[]}`, `{"kind":"ConfigMapList","items":[]}`, `<html>`, `{"type":"ADDED","object":{`,
		`{"type":"ADDED","object":{"metadata":{"name":5}}}`,
	} {
		for _, keep := range []representation{typed, dynamic, raw, metadata} {
			if keep.name != typed.name && strings.Contains(body, `"name":5`) && keep.name == dynamic.name {
				continue // which keeps what it does not know
			}
			if got, err := keep.watch(t.Context(), wires[0].answer([]byte(body)), configMaps, source.WatchOptions{}); err == nil {
				t.Errorf("%s is watched as %s: %v", body, keep.name, got)
			}
		}
	}
	for name, body := range map[string]string{
		"a list":                   string(wires[1].list(metav1.ListMeta{}, makeConfigMap(0))),
		"an empty frame":           "\x00\x00\x00\x00",
		"a frame of 4 GiB":         "\xff\xff\xff\xff\x0a\x05ADDED",
		"an object without magic":  "\x00\x00\x00\x0d\x0a\x05ADDED\x12\x04\x0a\x02\x0a\x00",
		"half a length":            "\x00\x00",
		"a frame that is no event": "\x00\x00\x00\x02\x0a\x05",
	} {
		if got, err := typed.watch(t.Context(), wires[1].answer([]byte(body)), configMaps, source.WatchOptions{}); err == nil {
			t.Errorf("%s is watched as %v", name, got)
		}
	}
}

func TestCallerEndsAWatch(t *testing.T) {
	enough := errors.New("enough")
	for _, w := range []wire{wires[0], wires[1]} {
		frame, n := w.frame("ADDED", w.single(makeConfigMap(0))), 0
		err := newSource[*corev1.ConfigMap](w.answer(join(frame, frame, frame)), configMaps).
			Watch(t.Context(), source.WatchOptions{}, func(source.Event[*corev1.ConfigMap]) error {
				if n++; n == 2 {
					return enough
				}
				return nil
			})
		if err != enough || n != 2 {
			t.Errorf("%s: ended with %v after %d events", w.name, err, n)
		}
	}
}

// The Status of an answer that is not 200 is the error, in both encodings. Retry-After
// is kept, whether it is in the header or in the Status.
func TestStatusErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for _, w := range []wire{wires[0], wires[1]} {
		for _, c := range []struct {
			sent   *apierrors.StatusError
			header string
			is     func(error) bool
			after  int // seconds
		}{
			{apierrors.NewForbidden(resource, "", errors.New(`User "jo" cannot list`)), "", apierrors.IsForbidden, 0},
			{apierrors.NewUnauthorized("Unauthorized"), "", apierrors.IsUnauthorized, 0},
			{apierrors.NewNotFound(resource, "x"), "", apierrors.IsNotFound, 0},
			{apierrors.NewResourceExpired("too old"), "", apierrors.IsResourceExpired, 0},
			{apierrors.NewTooManyRequests("slow down", 3), "", apierrors.IsTooManyRequests, 3},
			{apierrors.NewTooManyRequests("slow down", 3), "9", apierrors.IsTooManyRequests, 3}, // the Status is the application's word
			{apierrors.NewTooManyRequests("slow down", 0), "9", apierrors.IsTooManyRequests, 9},
			{apierrors.NewServiceUnavailable("starting"), "4", apierrors.IsServiceUnavailable, 4},
			{apierrors.NewServiceUnavailable("starting"), "tomorrow", apierrors.IsServiceUnavailable, 0},
			{apierrors.NewServiceUnavailable("starting"), "-4", apierrors.IsServiceUnavailable, 0},
			{apierrors.NewTimeoutError("too slow", 2), "", apierrors.IsTimeout, 2},
		} {
			server := w.answer(w.encode(failure(c.sent)))
			server.status = int(c.sent.ErrStatus.Code)
			if c.header != "" {
				server.header.Set("Retry-After", c.header)
			}
			_, _, listErr := typed.list(t.Context(), server, configMaps, source.ListOptions{})
			_, watchErr := typed.watch(t.Context(), server, configMaps, source.WatchOptions{})
			for verb, err := range map[string]error{"list": listErr, "watch": watchErr} {
				after, _ := apierrors.SuggestsClientDelay(err)
				if !c.is(err) || after != c.after || !strings.Contains(err.Error(), verb+" configmaps of cluster test: "+c.sent.ErrStatus.Message) {
					t.Errorf("%s, %d: %v, come back after %d s", w.name, server.status, err, after)
				}
			}
		}
	}
}

// Proxies answer in formats of their own.
func TestAnswersOfProxies(t *testing.T) {
	const page = "<html><body><h1>503 Service Unavailable</h1></body></html>"
	for _, c := range []struct {
		status      int
		contentType string
		body        string
		is          func(error) bool
		says        []string
	}{
		{502, "text/html", page, nil, []string{"prevented the request from succeeding", "503 Service Unavailable"}},
		{503, "text/html", page, apierrors.IsServiceUnavailable, nil},
		{503, "application/json", `{"error":"upstream"}`, apierrors.IsServiceUnavailable, nil},
		{503, "application/vnd.kubernetes.protobuf", "k8s", apierrors.IsServiceUnavailable, nil},
		{429, "text/plain", "slow down", apierrors.IsTooManyRequests, nil},
		{403, "text/html", "blocked by policy", apierrors.IsForbidden, []string{"blocked by policy"}},
		{404, "text/plain", "404 page not found\n", apierrors.IsNotFound, []string{"could not find"}},
		{401, "", "", apierrors.IsUnauthorized, nil},
		{500, "text/plain", strings.Repeat("long ", 1000), apierrors.IsInternalError, []string{"long", "…"}},
		{204, "", "", nil, []string{"204"}},
		{200, "text/html; charset=utf-8", page, nil, []string{"text/html", "is it an API server"}},
		{200, "", `{"items":[]}`, nil, []string{"content type"}},
		{200, "application/json;=", `{"items":[]}`, nil, []string{"content type"}},
	} {
		server := &answer{status: c.status, header: http.Header{"Content-Type": {c.contentType}}, body: []byte(c.body)}
		_, _, listErr := typed.list(t.Context(), server, configMaps, source.ListOptions{})
		_, watchErr := typed.watch(t.Context(), server, configMaps, source.WatchOptions{})
		for verb, err := range map[string]error{"list": listErr, "watch": watchErr} {
			if err == nil || c.is != nil && !c.is(err) || len(err.Error()) > 1000 {
				t.Errorf("%d %s: %s gives %v", c.status, c.contentType, verb, err)
				continue
			}
			for _, part := range append(c.says, verb+" configmaps of cluster test: ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%d %s: the error does not say %q: %v", c.status, c.contentType, part, err)
				}
			}
		}
	}
}

// A corrupt event ends a watch with an error at once. It must not swallow the events
// after it until the server ends the watch. Only the end of its line shows that it is
// over.
func TestCorruptEventEndsAWatch(t *testing.T) {
	w := wires[0]
	good := string(w.frame("ADDED", w.single(makeConfigMap(0))))
	spoil := map[string]string{
		"garbage":                      `{"ty` + strings.Repeat("\xff", 300),
		"half of one":                  strings.TrimSpace(good)[:len(good)/2],
		"without a bracket":            strings.TrimSuffix(strings.TrimSpace(good), "}"),
		"without a quote":              strings.Replace(strings.TrimSpace(good), `"ADDED"`, `"ADDED`, 1),
		"half of one, over many lines": strings.ReplaceAll(strings.TrimSpace(good)[:len(good)/2], ",", ",\n"),
	}
	for name, bad := range spoil {
		for _, after := range []string{"", good, strings.Repeat(good, 100)} {
			synctest.Test(t, func(t *testing.T) {
				body, server := io.Pipe()
				defer body.Close()
				go func() { _, _ = io.WriteString(server, good+bad+"\n"+after) }() // and no end
				src := newSource[*corev1.ConfigMap](endless{body}, configMaps)
				begun, n := time.Now(), 0
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				context.AfterFunc(ctx, func() { server.CloseWithError(ctx.Err()) })
				err := src.Watch(ctx, source.WatchOptions{}, func(source.Event[*corev1.ConfigMap]) error { n++; return nil })
				if after == "" && name != "garbage" && name != "without a quote" {
					return // it may still be more of the same
				}
				if err == nil || n != 1 || time.Since(begun) > time.Second {
					t.Errorf("%s: after %v and %d events: %v", name, time.Since(begun), n, err)
				}
			})
		}
	}
}

// endless answers with a body that arrives in pieces and does not end.
type endless struct{ body io.ReadCloser }

func (e endless) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: e.body, Request: req}, nil
}

// Events may have several lines.
func TestEventsOverSeveralLines(t *testing.T) {
	w := wires[0]
	var pretty bytes.Buffer
	for i := range 50 {
		if err := json.Indent(&pretty, w.frame("ADDED", w.single(makeConfigMap(i))), "", "  "); err != nil {
			t.Fatal(err)
		}
	}
	for _, chunk := range []int{1, 7, 1000, pretty.Len()} {
		var names []string
		body := io.NopCloser(iotest.OneByteReader(bytes.NewReader(pretty.Bytes())))
		if chunk > 1 {
			body = io.NopCloser(io.MultiReader(bytes.NewReader(pretty.Bytes()[:chunk]), bytes.NewReader(pretty.Bytes()[chunk:])))
		}
		err := newSource[*corev1.ConfigMap](endless{body}, configMaps).Watch(t.Context(), source.WatchOptions{}, func(e source.Event[*corev1.ConfigMap]) error {
			names = append(names, e.Object.Name)
			return nil
		})
		if err != nil || len(names) != 50 || names[49] != makeConfigMap(49).Name {
			t.Errorf("in parts of %d: %d events, %v", chunk, len(names), err)
		}
	}
}
