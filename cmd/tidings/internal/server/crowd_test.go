package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Requests in review count against their caller's limit, and leave room for others.
func TestCallerLimitCountsReviews(t *testing.T) {
	const path = "/api/v1/configmaps?resourceVersion=0"
	for name, c := range map[string]struct {
		silent  schema.GroupVersionResource
		path    string
		headers []string
	}{
		"its rights":           {accessReviews, "/api/v1/namespaces/invented-%d/configmaps?resourceVersion=0", nil},
		"what is not there":    {accessReviews, "/invented-%d", nil},
		"whom it wants to be":  {accessReviews, "/cm?%d", []string{"Impersonate-User", "carol"}},
		"its token, once more": {tokenReviews, "/cm?%d", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, server.Options{MaxRequests: 4, MaxRequestsPerCaller: 2}, func(b *bubble) {
				const here = "192.0.2.1:1"
				b.want("alice", b.ask(here, "alice-token", path), "200")
				time.Sleep(9 * time.Second)
				b.want("bob", b.ask(here, "bob-token", path), "200")
				time.Sleep(2 * time.Second) // what is known of alice has run out
				defer b.cluster.Inject(fakeapi.On("create", c.silent, &fakeapi.Fault{Delay: time.Second}))()
				answers := make(chan string, 4)
				for i := range 4 {
					go func() { answers <- b.ask(here, "alice-token", fmt.Sprintf(c.path, i), c.headers...) }()
				}
				synctest.Wait()
				b.want("bob", b.ask(here, "bob-token", path), "200")
				time.Sleep(10 * time.Second)
				if got := b.drain(answers); got["429 after 1"] != 2 {
					t.Errorf("alice: %v", got)
				}
				b.want("alice, afterwards", b.ask(here, "alice-token", path), "200")
			})
		})
	}
}

// A caller whose requests need ever more reviews, and gives them up, keeps no other
// caller waiting.
func TestReviewsOfOneCallerLeaveSeatsForOthers(t *testing.T) {
	inBubble(t, server.Options{}, func(b *bubble) {
		b.want("bob", b.ask("192.0.2.2:1", "bob-token", "/api/v1/configmaps"), "200")
		defer b.cluster.Inject(fakeapi.On("create", accessReviews, &fakeapi.Fault{Delay: 500 * time.Millisecond}))()
		over := b.crowd("alice-token", "/api/v1/namespaces/invented-%d/nothings")
		for range 6 {
			time.Sleep(5 * time.Second)
			begun := time.Now()
			b.want("bob", b.ask("192.0.2.2:1", "bob-token", "/api/v1/configmaps"), "200")
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("bob has waited %s", took)
			}
		}
		over()
	})
}

// crowd sends 200 requests a second, and cancels each.
func (b *bubble) crowd(token, path string) (over func()) {
	ctx, stop := context.WithCancel(b.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			all.Go(func() {
				defer func() { _ = recover() }() // how a server ends a request that nobody waits for
				one, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				r := httptest.NewRequestWithContext(one, http.MethodGet, fmt.Sprintf(path, i), nil)
				r.RemoteAddr = "192.0.2.1:1"
				r.Header.Set("Authorization", "Bearer "+token)
				b.server.Handler().ServeHTTP(httptest.NewRecorder(), r)
			})
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() {
		stop()
		all.Wait()
		time.Sleep(time.Minute) // what has been sent is answered
	}
}
