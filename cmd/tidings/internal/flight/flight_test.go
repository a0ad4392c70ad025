package flight_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/tidings-io/tidings/cmd/tidings/internal/flight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Calls of one key share a result, calls of different keys do not.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[string, int]
		ran := 0
		release := make(chan struct{})
		do := func(_ context.Context, sent func()) int {
			ran++
			n := ran
			sent()
			<-release
			return n
		}
		first := g.Join(t.Context(), "a", do)
		synctest.Wait()
		second := g.Join(t.Context(), "a", do)
		other := g.Join(t.Context(), "b", do)
		synctest.Wait()
		select {
		case <-first.Done():
			t.Error("the call is done before it has a result")
		case <-first.Sent():
		}
		if first != second {
			t.Error("two calls in flight for one key")
		}
		close(release)
		<-second.Done()
		<-other.Done()
		if first.Result() != 1 || second.Result() != 1 || other.Result() != 2 {
			t.Errorf("results %d, %d, %d", first.Result(), second.Result(), other.Result())
		}
		for _, c := range []*flight.Call[string, int]{first, second, other} {
			g.Leave(c)
		}
		synctest.Wait()
		again := g.Join(t.Context(), "a", do)
		defer g.Leave(again)
		<-again.Done()
		if again.Result() != 3 {
			t.Error("a call that is done is joined again")
		}
	})
}

// A call is canceled when the last waiter leaves before its request is sent. The
// next Join starts another one.
func TestCancelsWhatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[string, error]
		wait := func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := g.Join(ctx, "a", wait)
		second := g.Join(t.Context(), "a", wait)
		cancel() // the context of a waiter is not that of the call
		g.Leave(first)
		synctest.Wait()
		select {
		case <-second.Done():
			t.Error("canceled while another waits")
		default:
		}
		g.Leave(second)
		third := g.Join(t.Context(), "a", wait)
		if third == second {
			t.Error("a canceled call is joined")
		}
		<-second.Done()
		if second.Result() != context.Canceled {
			t.Errorf("result %v", second.Result())
		}
		synctest.Wait() // the end of the canceled call does not remove the third one
		if c := g.Join(t.Context(), "a", wait); c != third {
			t.Error("the call in flight is forgotten")
		}
		g.Leave(third)
		g.Leave(third)
		<-third.Done()
	})
}

// A call whose request has been sent goes on without waiters, for others to join.
func TestKeepsWhatHasBeenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[string, error]
		type key struct{}
		release := make(chan struct{})
		first := g.Join(context.WithValue(t.Context(), key{}, "value"), "a", func(ctx context.Context, sent func()) error {
			if ctx.Value(key{}) != "value" {
				t.Error("the context has lost its values")
			}
			sent()
			<-release
			return ctx.Err()
		})
		<-first.Sent()
		g.Leave(first)
		second := g.Join(t.Context(), "a", nil)
		defer g.Leave(second)
		if second != first {
			t.Error("a call whose request has been sent is not joined")
		}
		close(release)
		<-second.Done()
		if err := second.Result(); err != nil {
			t.Error(err)
		}
	})
}
