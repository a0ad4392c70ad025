package delta_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"

	"github.com/tidings-io/tidings/internal/delta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func updated(n int) delta.Delta[int] { return delta.Delta[int]{Type: delta.Updated, Object: n} }

func objects(deltas []delta.Delta[int]) []int {
	var out []int
	for _, d := range deltas {
		out = append(out, d.Object)
	}
	return out
}

func TestQueueKeepsTheOrder(t *testing.T) {
	q := delta.NewQueue[int]()
	next := 0
	// Batches of changing length, so that the queue's memory is reused, grows and is
	// freed.
	for round := range 200 {
		n := 1 + round%7
		if round == 20 {
			n = 3000
		}
		var want []int
		for range n {
			q.Push(updated(next))
			want = append(want, next)
			next++
		}
		got, err := q.Pop(t.Context())
		if err != nil || !slices.Equal(objects(got), want) {
			t.Fatalf("round %d popped %v, %v, not %v", round, objects(got), err, want)
		}
	}
}

func TestPopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delta.NewQueue[int]()
		go func() {
			for n := range 3 {
				time.Sleep(time.Second)
				q.Push(updated(n), updated(n))
			}
			time.Sleep(time.Second)
			q.Close()
			q.Push(updated(99)) // does nothing
		}()
		for n := range 3 {
			if got, err := q.Pop(t.Context()); err != nil || !slices.Equal(objects(got), []int{n, n}) {
				t.Fatalf("popped %v, %v", objects(got), err)
			}
		}
		if _, err := q.Pop(t.Context()); !errors.Is(err, delta.ErrClosed) {
			t.Fatalf("a closed queue gives %v", err)
		}
		open := delta.NewQueue[int]()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := open.Pop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Pop ends with %v", err)
		}
	})
}

// TestPushGetsThrough checks that Push does not wait for a Pop.
func TestPushGetsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delta.NewQueue[int]()
		for n := range 10_000 {
			q.Push(updated(n))
		}
		if q.Len() != 10_000 {
			t.Errorf("%d deltas wait", q.Len())
		}
	})
}

func TestPopFreesTheLastBatch(t *testing.T) {
	q := delta.NewQueue[*[64]byte]()
	o := new([64]byte)
	gone := weak.Make(o)
	q.Push(delta.Delta[*[64]byte]{Object: o})
	o = nil
	if _, err := q.Pop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = q.Pop(ctx)
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the queue holds an object of the previous batch")
	}
	runtime.KeepAlive(q)
}
