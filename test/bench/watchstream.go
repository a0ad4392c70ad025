package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

const (
	streamPods     = 5000 // in the initial list
	streamHandlers = 4
)

// watchStream moves changes of pods from the wire to handlers: an open watch over
// loopback HTTP, whose frames the server has encoded beforehand. Unlike fanout it
// includes reading and decoding.
var watchStream = line{
	name: "watchstream",
	what: fmt.Sprintf("%%d changes of %d pods through a watch over HTTP, in protobuf, to %d handlers", streamPods, streamHandlers),
	size: 100_000, quick: 100,
	setup: serveStream,
	claims: []claim{
		{18, "watch of 100,000 changes over HTTP to 4 handlers, events/s; typed", "events/s", "tidings, typed", "", target{}},
		{18, "the same, CPU µs an event; typed", "CPU µs an event", "tidings, typed", "", target{}},
		{18, "the same, events/s; compact", "events/s", "tidings, compact", "", target{}},
		{18, "the same, CPU µs an event; compact", "CPU µs an event", "tidings, compact", "", target{}},
		{18, "the same, events/s; the drop-in", "events/s", "tidings, drop-in", "", target{}},
		{18, "the same, CPU µs an event; the drop-in", "CPU µs an event", "tidings, drop-in", "", target{}},
	},
	sides: []side{
		streamSide("client-go, typed", sharedStream(clientGoReplay)),
		streamSide("tidings, drop-in", sharedStream(dropInReplay)),
		streamSide("tidings, typed", ourStream()),
		streamSide("tidings, compact", ourStream(informer.Compact())),
	},
}

// streamOpener prepares an informer whose handlers call their function for each update.
type streamOpener func(ctx context.Context, address string, handlers []func()) (start func() error, err error)

func sharedStream(open func(context.Context, string) (cache.SharedIndexInformer, func() error)) streamOpener {
	return func(ctx context.Context, address string, handlers []func()) (func() error, error) {
		pods, start := open(ctx, address)
		for _, count := range handlers {
			if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { count() }}); err != nil {
				return nil, err
			}
		}
		return start, nil
	}
}

func ourStream(opts ...informer.Option) streamOpener {
	return func(ctx context.Context, address string, handlers []func()) (func() error, error) {
		pods, err := tidingsReplay[*corev1.Pod](address, opts...)
		if err != nil {
			return nil, err
		}
		for _, count := range handlers {
			pods.AddHandler(informer.Handlers[*corev1.Pod]{Update: func(_, _ *corev1.Pod) { count() }})
		}
		return func() error { return pods.Start(ctx) }, nil
	}
}

// streamSide measures from the request for the changes to the last handler's last
// update. Every handler must get every update.
func streamSide(name string, open streamOpener) side {
	return side{name, func(ctx context.Context, changes int) (figures, error) {
		counters := make([]counter, streamHandlers)
		finished := make(chan struct{}, streamHandlers)
		var handlers []func()
		for i := range counters {
			c := &counters[i]
			handlers = append(handlers, func() {
				if c.n++; c.n == changes {
					finished <- struct{}{}
				}
			})
		}
		start, err := open(ctx, os.Getenv("STREAM"), handlers)
		if err != nil {
			return nil, err
		}
		if err := start(); err != nil {
			return nil, err
		}
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun, busy := time.Now(), cpu()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, os.Getenv("STREAM")+"/changes", nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		if err := resp.Body.Close(); err != nil {
			return nil, err
		}
		for range counters {
			select {
			case <-finished:
			case <-time.After(10 * time.Minute):
				return nil, errors.New("a handler has not got every update")
			}
		}
		took := time.Since(begun).Seconds()
		busy = cpu() - busy
		runtime.ReadMemStats(&after)
		n := float64(changes)
		return figures{
			"events/s":        n / took,
			"CPU µs an event": busy * 1e6 / n,
			"allocs an event": float64(after.Mallocs-before.Mallocs) / n,
			"bytes an event":  float64(after.TotalAlloc-before.TotalAlloc) / n,
		}, nil
	}}
}

// changeStream serves one watch at a time: the initial events, and the changes after
// PUT /changes.
type changeStream struct {
	initial, changes [][]byte // frames
	begin            chan struct{}
	discovery        http.Handler
}

// serveStream starts a server of so many changes and returns how clients find it.
func serveStream(_ context.Context, changes int) ([]string, func() error, error) {
	s := &changeStream{begin: make(chan struct{}), discovery: fakeapi.New(fakeapi.Options{})}
	if err := s.record(samplepods.Clone(streamPods, 1), changes); err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(listener) }()
	return []string{"STREAM=http://" + listener.Addr().String()}, server.Close, nil
}

// record encodes the list and the changes: of one pod after the other, each of which
// becomes ready or unready.
func (s *changeStream) record(pods []corev1.Pod, changes int) error {
	for i := range pods {
		pods[i].TypeMeta = podType
		b, err := watchFrame("ADDED", &pods[i])
		if err != nil {
			return err
		}
		s.initial = append(s.initial, b)
	}
	b, err := watchFrame("BOOKMARK", endOfList(versions[0]))
	if err != nil {
		return err
	}
	s.initial = append(s.initial, b)
	version, err := strconv.Atoi(versions[0])
	if err != nil {
		return err
	}
	for i := range changes {
		pod := &pods[i%len(pods)]
		pod.ResourceVersion = strconv.Itoa(version + 1 + i)
		pod.Status.Conditions = slices.Clone(pod.Status.Conditions)
		ready := &pod.Status.Conditions[1]
		if ready.Status == corev1.ConditionFalse {
			ready.Status = corev1.ConditionTrue
		} else {
			ready.Status = corev1.ConditionFalse
		}
		b, err := watchFrame("MODIFIED", pod)
		if err != nil {
			return err
		}
		s.changes = append(s.changes, b)
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (s *changeStream) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/changes":
		select {
		case s.begin <- struct{}{}:
		case <-req.Context().Done():
		}
		return
	case "/api/v1/pods":
	default:
		s.discovery.ServeHTTP(w, req)
		return
	}
	if q := req.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") != "true" {
		http.Error(w, fmt.Sprintf("only one watch with initial events is served, not %s", req.URL), http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	send := func(frames [][]byte) bool {
		for _, frame := range frames {
			if _, err := w.Write(frame); err != nil {
				return false
			}
		}
		return http.NewResponseController(w).Flush() == nil
	}
	if !send(s.initial) {
		return
	}
	select {
	case <-s.begin:
	case <-req.Context().Done():
		return
	}
	if send(s.changes) {
		<-req.Context().Done()
	}
}
