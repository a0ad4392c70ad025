package source_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// The transport cannot always detect a truncated body: one that ends with the connection
// seems complete. So the reader must detect it, wherever the cut is: an object missing
// from a list would be deleted from the store.
func TestTruncatedLists(t *testing.T) {
	items := []corev1.ConfigMap{makeConfigMap(0), makeConfigMap(1), makeConfigMap(2)}
	for _, w := range wires {
		body := w.list(metav1.ListMeta{ResourceVersion: "200", Continue: "more"}, items...)
		for _, keep := range w.keeps {
			whole, want, err := keep.list(t.Context(), w.answer(body), configMaps, source.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			complete := 0
			for n := range len(body) {
				got, result, err := keep.list(t.Context(), w.answer(body[:n]), configMaps, source.ListOptions{})
				if err != nil {
					continue
				}
				complete++
				if !reflect.DeepEqual(got, whole) || result != want {
					t.Errorf("%s as %s: %d of %d bytes are read as %d objects, %+v", w.name, keep.name, n, len(body), len(got), result)
				}
			}
			// Only the end of the line, or of the envelope, may be missing.
			if complete > 2 {
				t.Errorf("%s as %s: %d prefixes of the list are taken for the whole", w.name, keep.name, complete)
			}
		}
	}
}

// A truncated watch delivers all complete events, and ends in good order only between
// two events.
func TestTruncatedWatches(t *testing.T) {
	for _, w := range wires {
		frames := [][]byte{w.frame("ADDED", w.single(makeConfigMap(0))), w.bookmark("110", nil), w.frame("DELETED", w.single(makeConfigMap(1)))}
		body := join(frames...)
		for _, keep := range w.keeps {
			all, err := keep.watch(t.Context(), w.answer(body), configMaps, source.WatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for n := range len(body) {
				got, err := keep.watch(t.Context(), w.answer(body[:n]), configMaps, source.WatchOptions{})
				// How many events are whole, and how many bytes into the next is
				// the cut? Of JSON, the end of the line may be missing.
				whole, into := 0, n
				for whole < len(frames) && into >= len(bytes.TrimSuffix(frames[whole], []byte("\n"))) {
					into -= len(frames[whole])
					whole++
				}
				if len(got) != whole || whole > 0 && !reflect.DeepEqual(got, all[:whole]) || (err == nil) != (into <= 0) {
					t.Fatalf("%s as %s: cut after %d bytes, which is %d events and %d bytes, it gives %d events and %v", w.name, keep.name, n, whole, into, len(got), err)
				}
			}
		}
	}
}

// The same with a real server and compression, where the transport detects some cuts.
func TestTruncatedAndCompressedAnswers(t *testing.T) {
	w := wires[0]
	body := w.list(metav1.ListMeta{ResourceVersion: "200"}, makeConfigMap(0), makeConfigMap(1))
	var packed bytes.Buffer
	pack := gzip.NewWriter(&packed)
	_, _ = pack.Write(body)
	_ = pack.Close()
	var connections sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		connections.Store(req.RemoteAddr, nil)
		rw.Header().Set("Content-Type", w.contentType)
		answer := body
		if req.URL.Query().Get("labelSelector") == "gzip" && strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
			rw.Header().Set("Content-Encoding", "gzip")
			answer = packed.Bytes()
		}
		var n int
		if _, err := fmt.Sscan(req.URL.Query().Get("continue"), &n); err == nil {
			answer = answer[:n]
			if n%2 == 0 { // say that more was to come
				rw.Header().Set("Content-Length", fmt.Sprint(n+1))
			}
		}
		_, _ = rw.Write(answer)
		if req.URL.Query().Get("continue") == "" {
			return
		}
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.For[*corev1.ConfigMap](configMap, codec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for selector, length := range map[string]int{"plain": len(body), "gzip": packed.Len()} {
		target := configMaps
		target.Labels = selector
		list := func(cut string) (n int, err error) {
			_, err = source.NewKube(client, base, target, c).List(t.Context(), source.ListOptions{Continue: cut}, func(*corev1.ConfigMap) error {
				n++
				return nil
			})
			return n, err
		}
		for range 3 {
			if n, err := list(""); n != 2 || err != nil {
				t.Errorf("%s: %d objects, %v", selector, n, err)
			}
		}
		for n := 0; n < length; n += 7 {
			if got, err := list(fmt.Sprint(n)); err == nil {
				t.Errorf("%s: %d of %d bytes are read as a list of %d", selector, n, length, got)
			}
		}
	}
	connections.Clear()
	for range 5 { // a list that has been read to its end leaves the connection usable
		if _, err := source.NewKube(client, base, configMaps, c).List(t.Context(), source.ListOptions{}, func(*corev1.ConfigMap) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	used := 0
	connections.Range(func(any, any) bool { used++; return true })
	if used > 1 {
		t.Errorf("5 lists took %d connections", used)
	}
}

// Memory is allocated as bytes arrive, not by the announced length.
func TestLengthsAreNotTrusted(t *testing.T) {
	for name, read := range map[string]func() error{
		"list": func() error {
			_, _, err := typed.list(t.Context(), wires[1].answer([]byte("k8s\x00\x12\xff\xff\xff\x3f\x0a\x00\x12\xff\xff\xff\x3e\x0a\x02")), configMaps, source.ListOptions{})
			return err
		},
		"watch": func() error {
			_, err := typed.watch(t.Context(), wires[1].answer([]byte("\x07\xff\xff\xff\x0a\x05ADDED")), configMaps, source.WatchOptions{})
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 4<<20 {
			t.Errorf("a few bytes of a %s took %d bytes of memory: %v", name, took, err)
		}
	}
}

// The size of one object is limited, even if the server keeps sending.
func TestObjectsAreBounded(t *testing.T) {
	source.LimitMessages(t, 1<<20)
	for name, c := range map[string]struct {
		wire wire
		head string
		rest byte
	}{
		"JSON list":     {wires[0], `{"items":["`, 'a'},
		"JSON watch":    {wires[0], `{"type":"ADDED","object":"`, 'a'},
		"protobuf list": {wires[1], "k8s\x00\x12\xff\xff\xff\xff\x00\x12\x81\x80\x40", 0},
	} {
		endless := packets{c.wire.answer(nil), func(io.Reader) io.Reader {
			return io.LimitReader(io.MultiReader(strings.NewReader(c.head), endlessly(c.rest)), 4<<20)
		}}
		var err error
		if strings.HasSuffix(name, "list") {
			_, _, err = typed.list(t.Context(), endless, configMaps, source.ListOptions{})
		} else {
			_, err = typed.watch(t.Context(), endless, configMaps, source.WatchOptions{})
		}
		if err == nil || !strings.Contains(err.Error(), "over the limit") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// endlessly is a reader of one byte that never ends.
type endlessly byte

func (z endlessly) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(z)
	}
	return len(p), nil
}
