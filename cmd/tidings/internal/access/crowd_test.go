package access_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// invented returns an action that has not been reviewed before.
func invented(i int) access.Attributes {
	a := pods
	a.Namespace = fmt.Sprint("invented-", i)
	return a
}

// crowd reviews without pause, each time another action.
func (r *rig) crowd(ask func(ctx context.Context, a access.Attributes)) (over func()) {
	ctx, stop := context.WithCancel(r.ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			all.Go(func() { ask(ctx, invented(i)) })
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() {
		stop()
		all.Wait()
		time.Sleep(20 * time.Second) // what has been sent is answered
	}
}

// The cluster answers every review, but slowly. A caller that needs more reviews than
// it answers keeps a removed right for no longer than AllowTTL, and keeps no other
// caller waiting.
func TestNoGraceForOverload(t *testing.T) {
	for name, patience := range map[string]time.Duration{"given up": 0, "waiting": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, access.Options{}, func(r *rig) {
				for _, user := range []string{"alice", "bob"} {
					r.grant(user, pods, true)
				}
				alice, err := r.Authenticate(r.ctx, bearer("alice-token"))
				r.must(err)
				bob, err := r.Authenticate(r.ctx, bearer("bob-token"))
				r.must(err)
				r.must(r.Authorize(r.ctx, alice, pods))
				defer r.faulty(&fakeapi.Fault{Delay: 500 * time.Millisecond}, accessReviews)()
				r.grant("alice", pods, false)
				revoked := time.Now()
				over := r.crowd(func(ctx context.Context, a access.Attributes) {
					ctx, cancel := context.WithTimeout(ctx, patience)
					defer cancel()
					_ = r.Authorize(ctx, alice, a)
				})
				for time.Since(revoked) < 30*time.Second {
					begun := time.Now()
					if r.Authorize(r.ctx, alice, pods) == nil && begun.Sub(revoked) > 10*time.Second {
						t.Fatalf("she has the right for %s after its end", begun.Sub(revoked))
					}
					begun = time.Now()
					r.must(r.Authorize(r.ctx, bob, pods))
					if took := time.Since(begun); took > 500*time.Millisecond {
						t.Fatalf("bob has waited %s", took)
					}
					time.Sleep(time.Second)
				}
				if n := r.graced(); n != 0 {
					t.Errorf("%v answers by grace, of a cluster that answers", n)
				}
				over()
				if err := r.Authorize(r.ctx, alice, pods); !apierrors.IsForbidden(err) {
					t.Error(err)
				}
			})
		})
	}
}

// A review that nobody waits for is not sent, and leaves nothing behind.
func TestCancelsReviewsWithoutWaiters(t *testing.T) {
	inBubble(t, access.Options{MaxReviews: 8}, func(r *rig) {
		alice, err := r.Authenticate(r.ctx, bearer("alice-token"))
		r.must(err)
		over := outages["silent"](r, accessReviews)
		before := runtime.NumGoroutine()
		r.cluster.ResetCounts()
		for i := range 1000 {
			ctx, cancel := context.WithCancel(r.ctx)
			go func() { _ = r.Authorize(ctx, alice, invented(i)) }()
			synctest.Wait()
			cancel()
		}
		synctest.Wait()
		if n := r.cluster.Count("create", accessReviews); n != 4 {
			t.Errorf("%d reviews are in flight, of 4 that one caller may have", n)
		}
		if n := runtime.NumGoroutine() - before; n > 100 {
			t.Errorf("%d goroutines are left", n)
		}
		// A review goes on while one of several waiters stays.
		r.grant("alice", pods, true)
		ctx, cancel := context.WithCancel(r.ctx)
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() { left <- r.Authorize(ctx, alice, pods) }()
		synctest.Wait()
		go func() { stayed <- r.Authorize(r.ctx, alice, pods) }()
		synctest.Wait()
		cancel()
		<-left
		over()
		r.must(<-stayed)
		if n := r.cluster.Count("create", accessReviews); n != 5 {
			t.Errorf("%d reviews", n)
		}
	})
}

// A caller that impersonates another uses its own seats.
func TestImpersonationUsesOwnSeats(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("alice", access.Attributes{Verb: "impersonate", Resource: "users", Name: "bob"}, true)
		r.grant("bob", pods, true)
		asBob, err := r.Authenticate(r.ctx, bearer("alice-token", "Impersonate-User", "bob"))
		r.must(err)
		bob, err := r.Authenticate(r.ctx, bearer("bob-token"))
		r.must(err)
		over := r.faulty(&fakeapi.Fault{Delay: 3 * time.Second}, accessReviews)
		defer r.crowd(func(ctx context.Context, a access.Attributes) {
			_ = r.Authorize(ctx, asBob, a)
		})()
		time.Sleep(5 * time.Second)
		same := make(chan error, 1)
		go func() { same <- r.Authorize(r.ctx, asBob, pods) }()
		synctest.Wait()
		begun := time.Now()
		r.must(r.Authorize(r.ctx, bob, pods))
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("bob has waited %s", took)
		}
		<-same
		over()
	})
}

// With more reviews than seats, the last positive results serve all of one caller's
// while the cluster does not answer.
func TestGraceForManyReviews(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		alice, err := r.Authenticate(r.ctx, bearer("alice-token"))
		r.must(err)
		for i := range 200 {
			r.grant("alice", invented(i), true)
			r.must(r.Authorize(r.ctx, alice, invented(i)))
		}
		defer outages["silent"](r, accessReviews)()
		for range 5 {
			time.Sleep(10 * time.Second)
			begun := time.Now()
			answers := make(chan error, 200)
			for i := range 200 {
				go func() { answers <- r.Authorize(r.ctx, alice, invented(i)) }()
			}
			for range 200 {
				r.must(<-answers)
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("waited %s", took)
			}
		}
	})
}
