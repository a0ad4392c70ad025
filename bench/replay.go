package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/demo"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// replay serves pods it has encoded once, as the initial events of a watch, and
// then says no more: the server costs as little as can be, in a process of its
// own.
type replay struct {
	frames    [][]byte // of a watch, in protobuf
	discovery http.Handler
}

// serveReplay starts a server of size pods and returns how its clients find it.
func serveReplay(_ context.Context, size int) ([]string, func() error, error) {
	address, stop, err := startReplay(samplepods.Clone(size, 1))
	return []string{"REPLAY=" + address}, stop, err
}

// startReplay starts a server of these pods.
func startReplay(pods []corev1.Pod) (address string, stop func() error, err error) {
	r := &replay{discovery: demo.New(demo.Options{})}
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	frame := func(kind string, o runtime.Object) error {
		var object bytes.Buffer
		if err := codec.Encode(o, &object); err != nil {
			return err
		}
		event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object.Bytes()}}
		b := make([]byte, 4, 4+event.Size())
		binary.BigEndian.PutUint32(b, uint32(event.Size()))
		body, err := event.Marshal()
		if err != nil {
			return err
		}
		r.frames = append(r.frames, append(b, body...))
		return nil
	}
	for i := range pods {
		pods[i].TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		if err := frame("ADDED", &pods[i]); err != nil {
			return "", nil, err
		}
	}
	end := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1000000000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	if err := frame("BOOKMARK", end); err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: r}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), server.Close, nil
}

// ServeHTTP implements [http.Handler].
func (r *replay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/api/v1/pods" {
		r.discovery.ServeHTTP(w, req)
		return
	}
	q := req.URL.Query()
	if q.Get("watch") == "" {
		http.Error(w, fmt.Sprintf("only watches are replayed, not %s", req.URL), http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	if q.Get("sendInitialEvents") == "true" {
		for _, frame := range r.frames {
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
	}
	_ = http.NewResponseController(w).Flush()
	<-req.Context().Done()
}
