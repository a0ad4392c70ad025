package clientgo_test

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// fault is how a request fails.
type fault struct {
	verb  string // list, watch, watchlist
	times int    // -1: until cleared
	delay time.Duration
	err   error // instead of a response
	stale int   // how many writes a list is behind, if it may be

	after       int                    // the stream ends after so many events; -1: it does not
	status      *apierrors.StatusError // the last event; nil for none
	silent      bool                   // no events until the stream times out
	twice       bool                   // every event is sent twice
	noBookmarks bool
	noEnd       bool          // no end of the initial events
	late        time.Duration // delay of the end of the initial events, with changes before it
}

func (f *fault) String() string { return fmt.Sprintf("%+v", *f) }

// stream is one watch. All methods but Stop are called with the server's lock
// held.
type stream struct {
	server  *flakyServer
	fault   *fault
	events  chan watch.Event
	timer   *time.Timer
	late    *time.Timer
	initial bool // the initial events have not ended
	sent    int
}

func (st *stream) ResultChan() <-chan watch.Event { return st.events }

func (st *stream) Stop() {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.end(nil)
}

// end ends the stream, unless it has ended.
func (st *stream) end(status *apierrors.StatusError) {
	i := slices.Index(st.server.streams, st)
	if i < 0 {
		return
	}
	st.server.streams = slices.Delete(st.server.streams, i, i+1)
	st.timer.Stop()
	if st.late != nil {
		st.late.Stop()
	}
	if status != nil {
		st.events <- watch.Event{Type: watch.Error, Object: &status.ErrStatus}
	}
	close(st.events)
}

func (st *stream) send(e watch.Event) {
	if st.fault.silent || !slices.Contains(st.server.streams, st) {
		return
	}
	st.events <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
	if st.fault.twice {
		st.events <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
	}
	if st.sent++; st.sent == st.fault.after {
		st.end(st.fault.status)
	}
}

func (st *stream) bookmark(annotations map[string]string) {
	if st.fault.noBookmarks && annotations == nil {
		return
	}
	st.send(watch.Event{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: fmt.Sprint(st.server.version), Annotations: annotations,
	}}})
}

func (st *stream) sendInitial(pods []*corev1.Pod) {
	st.initial = true
	for _, p := range pods {
		st.send(watch.Event{Type: watch.Added, Object: p})
	}
	ended := func() {
		st.initial = false
		st.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	switch {
	case st.fault.noEnd:
	case st.fault.late > 0:
		st.late = time.AfterFunc(st.fault.late, func() {
			st.server.mu.Lock()
			defer st.server.mu.Unlock()
			ended()
		})
	default:
		ended()
	}
}

// Errors of requests and last events of streams.
var (
	refusals = []error{
		apierrors.NewResourceExpired("too old"), apierrors.NewTooManyRequests("busy", 2), apierrors.NewInternalError(errors.New("oops")),
		apierrors.NewServiceUnavailable("starting"), apierrors.NewTimeoutError("too slow", 1), apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "", nil),
		apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")),
		&url.Error{Op: "Get", URL: "https://server", Err: syscall.ECONNREFUSED}, io.ErrUnexpectedEOF,
	}
	closingStatuses = []*apierrors.StatusError{
		nil, apierrors.NewResourceExpired("too old"), apierrors.NewTooManyRequests("busy", 2), apierrors.NewInternalError(errors.New("oops")),
		apierrors.NewTimeoutError("too slow", 1),
	}
)
