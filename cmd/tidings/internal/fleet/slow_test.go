package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A publisher that cannot write as fast as its cluster changes folds what waits. Replicas then begin
// again with a snapshot.
func TestFoldedBacklog(t *testing.T) {
	r := newRig(t)
	r.retain = 10
	s := newSceneOf(t, r)
	messages := func() uint64 { return s.publisher.holds().Messages }
	resets := func() (n int) {
		for _, m := range s.records() {
			if m.reset {
				n++
			}
		}
		return n
	}
	if n := resets(); n != 0 {
		t.Fatalf("the log has %d resets already", n)
	}
	s.from.block(toClient) // the acknowledgements
	begun := messages()
	for sent := begun; sent < begun+128; { // as many as may wait for one
		s.write("a")
		s.eventually("a message more", func() error {
			if now := messages(); now > sent {
				sent = now
				return nil
			}
			return errors.New("none")
		})
	}
	for range 1000 {
		s.write("a")
		s.write("b")
	}
	s.from.release()
	s.recovers()
	if resets() == 0 {
		t.Error("nothing was folded")
	}
	s.unmixed()
}

// A watch of a replica that is not read holds up no other one.
func TestSlowWatch(t *testing.T) {
	s := newScene(t)
	ctx, cancel := context.WithCancel(s.ctx)
	watch := func(each func(read.Event) bool) (ended chan struct{}) {
		q, err := s.replica.query(read.Watch)
		s.must(err)
		events, err := s.replica.reader.Changes(ctx, q, read.Any, 0)
		s.must(err)
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			for e, err := range events {
				if err != nil || !each(e) {
					return
				}
			}
		}()
		return ended
	}
	stuck, begun := make(chan struct{}), make(chan struct{})
	slow := watch(func(read.Event) bool {
		close(begun)
		<-stuck
		return false
	})
	<-begun
	last := ""
	var seen atomic.Value
	fast := watch(func(e read.Event) bool {
		if e.Object != nil && e.Object.GetName() == "last" {
			seen.Store(valueOf(e.Object.JSON()))
		}
		return true
	})
	for range 500 {
		s.write("a")
	}
	s.write("last")
	last = s.now()["last"]
	s.eventually("the last change", func() error {
		if got := seen.Load(); got != last {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
	s.recovers()
	close(stuck)
	cancel()
	<-slow
	<-fast
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The etcd of the cluster is restored from a backup, so that resourceVersions go back. Watches of a replica see
// what those of the publisher see.
func TestClusterIsRestored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	backup := *r
	backup.api = fakeapi.New(fakeapi.Options{})
	other, stop := fakeapi.InProcess(backup.api)
	t.Cleanup(stop)
	backup.put("a", "old")
	var restored atomic.Bool
	r.cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if restored.Load() {
				return other.Transport.RoundTrip(req)
			}
			return next.RoundTrip(req)
		})
	})
	for i := range 20 {
		r.put("a", strconv.Itoa(i))
		r.put("b", strconv.Itoa(i))
	}
	p, one := r.publisher("first"), r.replica("one")
	one.has(map[string]string{"a": "19", "b": "19"})
	direct, followed := p.witness("the publisher"), one.witness("the replica")
	restored.Store(true)
	r.api.AbortWatches(configMaps)
	one.has(map[string]string{"a": "old"})
	backup.put("a", "new")
	backup.put("c", "new")
	one.has(map[string]string{"a": "new", "c": "new"})
	begun := time.Now()
	r.eventually("the same events", func() error {
		a, b := direct.changes(), followed.changes()
		if !slices.Equal(a, b) {
			return fmt.Errorf("after %v: %v was told %v, and %v %v", time.Since(begun), direct.name, a, followed.name, b)
		}
		return nil
	})
}
