package churn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// waitStable waits until each collection is watched and every watch may be
// broken. client-go treats a watch that ends within a second and without events
// as failed (VeryShortWatchError); what is requested next would then depend on
// timing.
func (r *recorder) waitStable(ctx context.Context) error {
	var states []string
	err := wait.PollUntilContextCancel(ctx, poll, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		states = states[:0]
		ready := len(r.streams) == len(r.collections)
		for s := range r.streams {
			states = append(states, fmt.Sprintf("%s: %d events in %s", s.collection, s.events, time.Since(s.since)))
			ready = ready && !s.initial && (s.events > 0 || time.Since(s.since) > 3*time.Second/2)
		}
		return ready, nil
	})
	if err != nil {
		return fmt.Errorf("wait for watches of %s, there are %s: %w", r.collections, strings.Join(states, ", "), err)
	}
	return nil
}

// waitOpen waits until each collection is watched.
func (r *recorder) waitOpen(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		open := 0
		for s := range r.streams {
			if !s.cut {
				open++
			}
		}
		return open == len(r.collections), nil
	})
	if err != nil {
		return fmt.Errorf("wait for watches of %s: %w", r.collections, err)
	}
	return nil
}

// breakWatches breaks all watches, as a lost connection does.
func (r *recorder) breakWatches() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.streams {
		s.cut = true
		s.body.Close()
	}
}

// block breaks all watches and blocks the requests that follow, until unblock.
// It returns when nothing can reach the controller any more.
func (r *recorder) block(ctx context.Context) error {
	if err := r.waitStable(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.open = make(chan struct{})
	r.mu.Unlock()
	r.breakWatches()
	err := wait.PollUntilContextCancel(ctx, poll, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.blocked == len(r.collections) && len(r.streams) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for requests after broken watches: %w", err)
	}
	return nil
}

// unblock lets lists and watches pass again.
func (r *recorder) unblock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.open)
}

// stream is the body of a watch. It inspects what the reflector reads.
type stream struct {
	r          *recorder
	request    *request
	collection string
	body       io.ReadCloser
	line       []byte // incomplete line; used by the reader only

	// The recorder's lock guards these.
	initial bool // the initial events have not ended
	events  int  // after the initial events
	since   time.Time
	cut     bool
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	s.line = append(s.line, p[:n]...)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for {
		line, rest, ok := bytes.Cut(s.line, []byte("\n"))
		if !ok {
			break
		}
		s.line = rest
		s.record(line)
	}
	if err != nil {
		delete(s.r.streams, s)
		if s.cut {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// record records an event.
func (s *stream) record(line []byte) {
	var event struct {
		Type   string
		Object struct {
			metav1.ObjectMeta `json:"metadata"`
			Code              int
		}
	}
	if err := json.Unmarshal(line, &event); err != nil {
		panic(fmt.Sprintf("event is not JSON: %v: %s", err, line))
	}
	if event.Type == "ERROR" {
		s.request.end = event.Object.Code
		return
	}
	if s.initial {
		if event.Object.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			return
		}
		s.initial, s.since = false, time.Now()
	} else {
		s.events++
	}
	s.r.last[s.collection] = event.Object.ResourceVersion
}

func (s *stream) Close() error {
	s.r.mu.Lock()
	delete(s.r.streams, s)
	s.r.mu.Unlock()
	return s.body.Close()
}
