package source_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// verbatim keeps the bytes of objects, to test how a source splits lists and watches.
// Like all codecs it returns an error for invalid JSON.
type verbatim struct{}

func (verbatim) Accept(bool) string { return "application/json" }

func (verbatim) Decode(format codec.Format, raw []byte) (string, error) {
	if format == codec.JSON && !json.Valid(raw) {
		return "", errors.New("no JSON")
	}
	return string(raw), nil
}

// reading returns a source that gets the given bytes as an answer, in packets.
func reading[T any](w wire, c codec.Codec[T], body []byte, cut func(io.Reader) io.Reader) *source.Kube[T] {
	return source.NewKube(&http.Client{Transport: packets{w.answer(body), cut}}, nowhere, configMaps, c)
}

// inPieces are the ways to split an answer, which must not make a difference.
var inPieces = []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader}

func readList[T any](t *testing.T, w wire, c codec.Codec[T], body []byte) (items []T, result source.ListResult, err error) {
	for i, cut := range inPieces {
		var again []T
		r, e := reading(w, c, body, cut).List(t.Context(), source.ListOptions{}, func(item T) error {
			again = append(again, item)
			return nil
		})
		if i > 0 && (!reflect.DeepEqual(again, items) || r != result || (e == nil) != (err == nil)) {
			t.Fatalf("in one piece %v, %+v, %v; byte by byte %v, %+v, %v", items, result, err, again, r, e)
		}
		items, result, err = again, r, e
	}
	return items, result, err
}

// readWatch reads a watch; an event is "TYPE object".
func readWatch(t *testing.T, w wire, body []byte) (events []string, err error) {
	names := map[source.EventType]string{source.Added: "ADDED", source.Modified: "MODIFIED", source.Deleted: "DELETED"}
	read := func(cut func(io.Reader) io.Reader, initial bool) (events []string, err error) {
		err = reading(w, verbatim{}, body, cut).Watch(t.Context(), source.WatchOptions{InitialEvents: initial}, func(e source.Event[string]) error {
			if e.Type == source.Bookmark {
				events = append(events, "BOOKMARK")
			} else {
				events = append(events, names[e.Type]+" "+e.Object)
			}
			return nil
		})
		return events, err
	}
	events, err = read(inPieces[0], false)
	again, e := read(inPieces[1], false)
	if !reflect.DeepEqual(again, events) || (e == nil) != (err == nil) {
		t.Fatalf("in one piece %q, %v; byte by byte %q, %v", events, err, again, e)
	}
	// Initial events are decoded in bulk. The reflector drops them after an error,
	// so it does not matter how many were delivered.
	again, e = read(inPieces[0], true)
	if err == nil && !reflect.DeepEqual(again, events) || (e == nil) != (err == nil) {
		t.Fatalf("one by one %q, %v; in bulk %q, %v", events, err, again, e)
	}
	return events, err
}

func FuzzJSONList(f *testing.F) {
	f.Add(wires[0].list(metav1.ListMeta{ResourceVersion: "7", Continue: "more"}, makeConfigMap(0), makeConfigMap(1)))
	f.Add(wires[2].list(metav1.ListMeta{ResourceVersion: "7"}, makeConfigMap(0)))
	for _, seed := range []string{`{}`, `{"items":null}`, `{"items":[],"metadata":{"remainingItemCount":5}}`, `{"items":[1,"}]",[{}]]}`, `{"items":[{},]}`, `{"items":[{} {}]}`, `{"items":[,{}]}`, `{"items":[{}],"metadata":{"continue":"c"}}`, `{"items":[{}]"metadata":{}}`, `{"items":[{]]}`,
		"{\"items\": [\n{\n\"a\": {}\n},\n{\n}\n]\n}", `{"items":[`, "{\"\\u0069tems\":[]}\n", `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		items, result, err := readList(t, wires[0], verbatim{}, body)
		var fields map[string]json.RawMessage
		var wantItems []json.RawMessage
		var wantMeta metav1.ListMeta
		bad := json.Unmarshal(body, &fields)
		if fields["items"] == nil {
			bad = errors.Join(bad, errors.New("no items"))
		} else {
			bad = errors.Join(bad, json.Unmarshal(fields["items"], &wantItems))
		}
		if fields["metadata"] != nil {
			bad = errors.Join(bad, json.Unmarshal(fields["metadata"], &wantMeta))
		}
		switch {
		case err != nil && bad == nil && !strings.Contains(err.Error(), "twice"):
			t.Fatalf("a good list is not read: %v", err)
		case err == nil && bad != nil:
			t.Fatalf("what is no list (%v) is read as one of %q", bad, items)
		case err != nil:
			return
		}
		if len(items) != len(wantItems) || result.ResourceVersion != wantMeta.ResourceVersion || result.Continue != wantMeta.Continue {
			t.Fatalf("read as %q, %+v, not %q, %+v", items, result, wantItems, wantMeta)
		}
		for i := range items {
			if items[i] != string(wantItems[i]) {
				t.Fatalf("item %d is %q, not %q", i, items[i], wantItems[i])
			}
		}
	})
}

func FuzzProtobufList(f *testing.F) {
	f.Add(wires[1].list(metav1.ListMeta{ResourceVersion: "7", Continue: "more"}, makeConfigMap(0), makeConfigMap(1)))
	f.Add(wires[3].list(metav1.ListMeta{ResourceVersion: "7"}, makeConfigMap(0)))
	f.Add(wires[1].list(metav1.ListMeta{}))
	for _, seed := range []string{"k8s\x00", "k8s\x00\x12\x02\x0a\x00", "k8s\x00\x12\x02\x0a\x00\x1a\x00\x22\x00", "k8s\x00\x12\x04\x0a\x00\x12\x00", "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		items, result, err := readList(t, wires[1], keepAll, body)
		var envelope runtime.Unknown
		var want corev1.ConfigMapList
		raw, good := bytes.CutPrefix(body, []byte("k8s\x00"))
		good = good && envelope.Unmarshal(raw) == nil
		bad := want.Unmarshal(envelope.Raw)
		if err != nil {
			// It may be stricter than the API machinery, but must accept what the
			// API machinery writes.
			want.TypeMeta = metav1.TypeMeta{Kind: envelope.Kind, APIVersion: envelope.APIVersion}
			if good && bad == nil && bytes.Equal(wires[1].encode(&want), body) {
				t.Fatalf("a good list is not read: %v", err)
			}
			return
		}
		if !good && bytes.HasPrefix(body, []byte("k8s\x00")) {
			return // a fault in those fields of the envelope that do not matter
		}
		if !good || bad != nil {
			t.Fatalf("what is no list (%v) is read as one of %v", bad, items)
		}
		if len(items) != len(want.Items) || result.ResourceVersion != want.ResourceVersion || result.Continue != want.Continue {
			t.Fatalf("read as %v, %+v, not %v", items, result, want)
		}
		for i := range items {
			want.Items[i].TypeMeta = items[i].TypeMeta
			if !reflect.DeepEqual(*items[i], want.Items[i]) {
				t.Fatalf("item %d is %v, not %v", i, items[i], want.Items[i])
			}
		}
	})
}

var keepAll = func() codec.Codec[*corev1.ConfigMap] {
	c, err := codec.For[*corev1.ConfigMap](configMap, codec.Options{KeepManagedFields: true})
	if err != nil {
		panic(err)
	}
	return c
}()

func FuzzJSONWatch(f *testing.F) {
	w := wires[0]
	f.Add(join(w.frame("ADDED", w.single(makeConfigMap(0))), w.bookmark("9", nil), w.frame("DELETED", w.single(makeConfigMap(0)))))
	f.Add(w.frame("ERROR", &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410}))
	for _, seed := range []string{``, `{}`, `{"type":"ADDED","object":5}`, `{"type":"ADDED","object":{}}{"type":`, `{"object":{},"type":"MODIFIED"}` + "\n\n", `null`,
		`{"type":"ADDED","object":{"a":"}\\\"{","b":[{}]}}{"type":"DELETED","object":{"c":"\\\\"}}`, `{"type":"ADDED","object":{},"more":[]}`, `{"type":"ADDED","object":{},"more":1}`,
		`{"type":"ADDED","object":{}}}`, `{"type":"ADDED","object":{]}`, `{"type":"ADDED","object":{x}}`, `{"type":"ADDED","object":[{}]}`, `{"type":"ADDED", "object":{}}`, `{"type":"ADDED","more":{},"object":1}`, `[]`,
		`{"tYpe":"ADDED"}`, "{\"type\":\"ADDED\",\n\"object\":{}}{\"type\":\"ADDED\",\"object\":{\n\n}", "{\"ty\n{\"type\":\"ADDED\",\"object\":{}}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		events, err := readWatch(t, w, body)
		frames := jsonserializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(body)))
		next := func() (kind string, object []byte, err error) {
			frame := make([]byte, len(body)+1)
			n, err := frames.Read(frame)
			var event struct {
				Type   string
				Object json.RawMessage
			}
			if err == nil {
				err = json.Unmarshal(frame[:n], &event)
			}
			return event.Type, event.Object, err
		}
		compareWatch(t, next, events, err)
	})
}

func FuzzProtobufWatch(f *testing.F) {
	w := wires[1]
	f.Add(join(w.frame("ADDED", w.single(makeConfigMap(0))), w.bookmark("9", nil), w.frame("DELETED", w.single(makeConfigMap(0)))))
	f.Add(w.frame("ERROR", &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410}))
	f.Add([]byte("\x00\x00\x00\x0f\x0a\x05ADDED\x12\x06\x0a\x04k8s\x00\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		events, err := readWatch(t, w, body)
		decoder := streaming.NewDecoder(protobuf.LengthDelimitedFramer.NewFrameReader(io.NopCloser(bytes.NewReader(body))), w.info().StreamSerializer.Serializer)
		next := func() (string, []byte, error) {
			var event metav1.WatchEvent
			if _, _, err := decoder.Decode(nil, &event); err != nil {
				return "", nil, err
			}
			raw, ok := bytes.CutPrefix(event.Object.Raw, []byte("k8s\x00"))
			if !ok {
				return "", nil, errors.New("not Kubernetes protobuf")
			}
			var envelope runtime.Unknown
			err := envelope.Unmarshal(raw)
			return event.Type, envelope.Raw, err
		}
		compareWatch(t, next, events, err)
	})
}

// compareWatch compares events with those that the API machinery's framing finds, up to
// the first invalid one.
func compareWatch(t *testing.T, next func() (string, []byte, error), events []string, ended error) {
	for i := 0; ; i++ {
		kind, object, err := next()
		switch {
		case errors.Is(err, io.EOF): // also behind half a frame, which is an error for us
			if len(events) != i {
				t.Fatalf("%q and then %v, not %d events", events, ended, i)
			}
			return
		case err != nil:
			if ended == nil || len(events) != i {
				t.Fatalf("%q and then %v, not %d events and then %v", events, ended, i, err)
			}
			return
		case kind == "BOOKMARK" || kind == "ERROR":
			if i == len(events) && ended != nil {
				return // it was an error, or has none of its own
			}
			object = nil
		case len(object) == 0 && i == len(events) && ended != nil:
			return // one without an object
		case kind != "ADDED" && kind != "MODIFIED" && kind != "DELETED":
			if ended == nil || len(events) != i {
				t.Fatalf("%q and then %v, where %q follows", events, ended, kind)
			}
			return
		}
		if want := strings.TrimSpace(fmt.Sprintf("%s %s", kind, object)); i >= len(events) || strings.TrimSpace(events[i]) != want {
			t.Fatalf("%q and then %v, where event %d is %q", events, ended, i, want)
		}
	}
}
