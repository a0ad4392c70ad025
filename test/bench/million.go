package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/klauspost/compress/s2"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// million mirrors a million real pods, kept compact, in a process that is told
// to make do with 1.8 GiB. For client-go there is no room on a machine of this
// size: it mirrors no more than a tenth.
var million = line{
	name: "million",
	what: "Mirrors of up to %d pods",
	size: 1_000_000, quick: 2000,
	setup: serveMillion,
	claims: []claim{
		{14, "1,000 pods: heap KB each, compact", "1/1000: heap KB/object", "tidings, compact", "", target{}},
		{14, "10,000 pods: heap KB each, compact", "1/100: heap KB/object", "tidings, compact", "", target{}},
		{14, "100,000 pods: heap KB each, compact", "1/10: heap KB/object", "tidings, compact", "", target{}},
		{14, "1,000,000 pods: heap KB each, compact", "all: heap KB/object", "tidings, compact", nobody, target{}},
		{14, "the same, times that of 10,000", "all / 1/100: heap KB/object", "tidings, compact", nobody, atMost(1.2)},
		{14, "1,000,000 pods: most memory of the process (RSS, GOMEMLIMIT=1800MiB), MB, compact", "peak RSS MB", "tidings, compact", nobody, atMost(2048)},
	},
	sides: []side{
		{"client-go", func(ctx context.Context, size int) (figures, error) {
			return mirrorParts(size, size/10, func(address string) (func() int, func() error, error) {
				ctx, cancel := context.WithCancel(ctx)
				pods, start := clientGoReplay(ctx, address)
				stop := func() error {
					cancel()
					for !pods.IsStopped() {
						time.Sleep(time.Millisecond)
					}
					return nil
				}
				return func() int { return len(pods.GetStore().ListKeys()) }, stop, start()
			})
		}},
		{"tidings, compact", func(ctx context.Context, size int) (figures, error) {
			debug.SetMemoryLimit(1800 << 20)
			return mirrorParts(size, size, func(address string) (func() int, func() error, error) {
				pods, err := tidingsReplay[*corev1.Pod](address, informer.Compact())
				if err != nil {
					return nil, nil, err
				}
				return held(pods), func() error { return pods.Empty(ctx) }, pods.Start(ctx)
			})
		}},
	},
}

// mirrorParts mirrors as many pods as there are for each part that is not more
// than most, one part after the other.
func mirrorParts(size, most int, open func(address string) (count func() int, stop func() error, err error)) (figures, error) {
	out := figures{}
	for _, part := range growParts {
		n := size / part
		if n > most {
			continue
		}
		name := "all"
		if part > 1 {
			name = fmt.Sprintf("1/%d", part)
		}
		var stop func() error
		got, err := settle(n, func() (count func() int, err error) {
			count, stop, err = open(os.Getenv(fmt.Sprintf("MILLION_%d", part)))
			return count, err
		})
		if err == nil {
			err = stop()
		}
		if err != nil {
			return nil, err
		}
		for figure, value := range got {
			out[name+": "+figure] = value
		}
	}
	if all, ok := out["all: heap KB/object"]; ok {
		out["all / 1/100: heap KB/object"] = all / out["1/100: heap KB/object"]
	}
	return out, nil
}

// serveMillion starts a server for each part. The pods have no managedFields,
// and what is sent is kept compressed: it takes no more memory than the mirror.
func serveMillion(_ context.Context, size int) (env []string, teardown func() error, err error) {
	var stops []func() error
	teardown = func() error {
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop())
		}
		return errors.Join(errs...)
	}
	for _, part := range growParts {
		sent, err := recordStream(size / part)
		if err != nil {
			return nil, nil, errors.Join(err, teardown())
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, errors.Join(err, teardown())
		}
		server := &http.Server{Handler: recording{sent, fakeapi.New(fakeapi.Options{})}}
		go func() { _ = server.Serve(listener) }()
		stops = append(stops, server.Close)
		env = append(env, fmt.Sprintf("MILLION_%d=http://%s", part, listener.Addr()))
	}
	return env, teardown, nil
}

// recordStream compresses the frames of the initial events of n pods.
func recordStream(n int) ([]byte, error) {
	var sent bytes.Buffer
	w := s2.NewWriter(&sent)
	for pod := range samplepods.All(n, 1) {
		pod.ManagedFields = nil
		pod.TypeMeta = podType
		b, err := watchFrame("ADDED", pod)
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			return nil, err
		}
	}
	end, err := watchFrame("BOOKMARK", endOfList(versions[0]))
	if err == nil {
		_, err = w.Write(end)
	}
	err = errors.Join(err, w.Close())
	return sent.Bytes(), err
}

// recording serves one recorded stream to every watch of pods.
type recording struct {
	sent      []byte
	discovery http.Handler
}

// ServeHTTP implements [http.Handler].
func (r recording) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/api/v1/pods" {
		r.discovery.ServeHTTP(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	if req.URL.Query().Get("sendInitialEvents") == "true" {
		if _, err := io.Copy(w, s2.NewReader(bytes.NewReader(r.sent))); err != nil {
			return
		}
	}
	_ = http.NewResponseController(w).Flush()
	<-req.Context().Done()
}
