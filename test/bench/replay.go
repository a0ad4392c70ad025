package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// replay serves pods that it has encoded once, as the initial events of a watch or, in
// JSON, as a list, so that the server costs as little as possible. It has two lists, between which one
// in a hundred pods has changed.
type replay struct {
	protobuf, json recorded
	discovery      http.Handler

	mu      sync.Mutex
	serving int           // which list
	changed chan struct{} // closed when it is to be the other one
}

// recorded is what is sent in one encoding.
type recorded struct {
	contentType string
	frame       func(kind string, o runtime.Object) ([]byte, error)
	lists       [2][][]byte // frames of a watch
	expired     []byte      // the frame that ends a watch
}

// record encodes the two lists.
func (r *recorded) record(pods []corev1.Pod) (err error) {
	add := func(list int, kind string, o runtime.Object) {
		b, e := r.frame(kind, o)
		r.lists[list] = append(r.lists[list], b)
		err = errors.Join(err, e)
	}
	for i, pod := range pods {
		pod.TypeMeta = podType
		add(0, "ADDED", &pod)
		if i%oneIn != 0 {
			r.lists[1] = append(r.lists[1], r.lists[0][i])
			continue
		}
		pod.ResourceVersion = versions[1]
		pod.Status.Conditions = slices.Clone(pod.Status.Conditions)
		pod.Status.Conditions[1].Status = corev1.ConditionFalse
		add(1, "ADDED", &pod)
	}
	for list, version := range versions {
		add(list, "BOOKMARK", endOfList(version))
	}
	expired, e := r.frame("ERROR", &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
	})
	r.expired = expired
	return errors.Join(err, e)
}

// oneIn is how many pods there are for each that changes between the lists.
const oneIn = 100

// versions of the two lists.
var versions = [2]string{"1000000000", "2000000000"}

// serveReplay starts a server of size pods and returns how its clients find it.
func serveReplay(_ context.Context, size int) ([]string, func() error, error) {
	address, stop, err := startReplay(samplepods.Clone(size, 1), false)
	return []string{"REPLAY=" + address}, stop, err
}

// serveBoth is serveReplay for clients that ask for JSON, too.
func serveBoth(_ context.Context, size int) ([]string, func() error, error) {
	address, stop, err := startReplay(samplepods.Clone(size, 1), true)
	return []string{"REPLAY=" + address}, stop, err
}

// startReplay starts a server of these pods.
func startReplay(pods []corev1.Pod, inJSON bool) (address string, stop func() error, err error) {
	r := &replay{
		protobuf:  recorded{contentType: "application/vnd.kubernetes.protobuf;stream=watch", frame: watchFrame},
		json:      recorded{contentType: "application/json", frame: watchLine},
		discovery: fakeapi.New(fakeapi.Options{}), changed: make(chan struct{}),
	}
	if err := r.protobuf.record(pods); err != nil {
		return "", nil, err
	}
	if inJSON {
		if err := r.json.record(pods); err != nil {
			return "", nil, err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: r}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), server.Close, nil
}

var podType = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}

// endOfList is the object of the bookmark that ends the initial events of a watch.
func endOfList(version string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: podType, ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
}

// watchLine is an event of a watch as it is sent in JSON.
func watchLine(kind string, o runtime.Object) ([]byte, error) {
	b, err := json.Marshal(struct { // in the order in which API servers have it
		Type   string `json:"type"`
		Object any    `json:"object"`
	}{kind, o})
	return append(b, '\n'), err
}

// watchFrame is an event of a watch as it is sent in protobuf.
func watchFrame(kind string, o runtime.Object) ([]byte, error) {
	var object bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &object); err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object.Bytes()}}
	b := make([]byte, 4, 4+event.Size())
	binary.BigEndian.PutUint32(b, uint32(event.Size()))
	body, err := event.Marshal()
	return append(b, body...), err
}

// ServeHTTP implements [http.Handler]. PUT /serving/0 and /serving/1 switch to a
// list and end the watches that began with the other one.
func (r *replay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/serving/0", "/serving/1":
		r.serve(int(req.URL.Path[len("/serving/")] - '0'))
		return
	case "/api/v1/pods":
	default:
		r.discovery.ServeHTTP(w, req)
		return
	}
	q := req.URL.Query()
	sent := &r.protobuf
	if !strings.Contains(req.Header.Get("Accept"), "protobuf") {
		sent = &r.json
	}
	r.mu.Lock()
	serving := r.serving
	frames, changed := sent.lists[serving], r.changed
	r.mu.Unlock()
	if q.Get("watch") == "" {
		if sent != &r.json {
			http.Error(w, fmt.Sprintf("lists are replayed in JSON only, not %s", req.URL), http.StatusNotImplemented)
			return
		}
		writeList(w, frames[:len(frames)-1], versions[serving])
		return
	}
	w.Header().Set("Content-Type", sent.contentType)
	if q.Get("sendInitialEvents") == "true" {
		for _, frame := range frames {
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case <-changed:
		_, _ = w.Write(sent.expired)
	case <-req.Context().Done():
	}
}

// writeList sends the objects of ADDED events in JSON as a list, all on one page. The items
// of lists have no kind and no apiVersion.
func writeList(w http.ResponseWriter, frames [][]byte, version string) {
	w.Header().Set("Content-Type", "application/json")
	_, err := fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[`, version)
	for i, frame := range frames {
		item := bytes.TrimSuffix(bytes.TrimPrefix(frame, []byte(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",`)), []byte("}\n"))
		separator := ",{"
		if i == 0 {
			separator = "{"
		}
		if err == nil {
			_, err = w.Write([]byte(separator))
		}
		if err == nil {
			_, err = w.Write(item)
		}
	}
	if err == nil {
		_, _ = w.Write([]byte("]}"))
	}
}

// serve switches to a list.
func (r *replay) serve(list int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.serving != list {
		close(r.changed)
		r.serving, r.changed = list, make(chan struct{})
	}
}
