package budget_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cmd/tidings/internal/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mega    = 1 << 20
	timeout = time.Minute
)

// asks asks for room, and reports whether there was any.
func asks(t *testing.T, b *budget.Budget, caller string, c budget.Cost) (leave func(), ok bool) {
	t.Helper()
	leave, err := b.Admit(t.Context(), caller, c)
	if err != nil && !apierrors.IsTooManyRequests(err) {
		t.Error(err)
	}
	if err != nil {
		if _, ok := apierrors.SuggestsClientDelay(err); !ok {
			t.Errorf("it is not said when to come back: %v", err)
		}
	}
	return leave, err == nil
}

// A response that does not fit waits, and is refused after a while.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(400*mega, timeout) // a quarter of which is for answers
		first, ok := asks(t, b, "", budget.Cost{Bytes: 60 * mega})
		if !ok {
			t.Fatal("there is room for the first")
		}
		begun := time.Now()
		if _, ok := asks(t, b, "", budget.Cost{Bytes: 60 * mega}); ok {
			t.Error("there is no room for the second")
		}
		if waited := time.Since(begun); waited == 0 || waited > timeout/2 {
			t.Errorf("it was refused after %s", waited)
		}
		time.AfterFunc(time.Second, first)
		second, ok := asks(t, b, "", budget.Cost{Bytes: 60 * mega})
		if !ok {
			t.Fatal("there was room when the first had left")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if _, err := b.Admit(ctx, "", budget.Cost{Bytes: 60 * mega}); !errors.Is(err, gone) {
			t.Errorf("who is gone is told %v", err)
		}
		second()
		// A response that exceeds the whole budget is admitted alone.
		whole, ok := asks(t, b, "a", budget.Cost{Bytes: 1000 * mega})
		if !ok {
			t.Fatal("there is nothing else")
		}
		if _, ok := asks(t, b, "b", budget.Cost{Bytes: mega}); ok {
			t.Error("it is not alone")
		}
		whole()
	})
}

// One caller leaves room for others.
func TestCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(400*mega, timeout)
		var leave []func()
		for range 5 {
			l, ok := asks(t, b, "a", budget.Cost{Bytes: 10 * mega})
			if !ok {
				t.Fatal("half of it is one caller's to have")
			}
			leave = append(leave, l)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, ok := asks(t, b, "a", budget.Cost{Bytes: 10 * mega}); ok {
				t.Error("a has more than half")
			}
		})
		synctest.Wait()
		begun := time.Now()
		l, ok := asks(t, b, "b", budget.Cost{Bytes: 10 * mega})
		if !ok || time.Since(begun) > 0 {
			t.Error("b has waited for a")
		}
		waiting.Wait()
		for _, l := range append(leave, l) {
			l()
		}
	})
}

// Few long responses are admitted at a time, while short ones and other callers' are
// admitted beside them; a response that takes too long is refused.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(0, timeout)
		long := budget.Cost{Bytes: mega, Work: timeout / 2}
		leave, ok := asks(t, b, "a", long)
		if !ok {
			t.Fatal("there is nothing else")
		}
		if _, ok := asks(t, b, "a", long); ok {
			t.Error("two take longer than they may")
		}
		if l, ok := asks(t, b, "b", long); !ok {
			t.Error("one caller keeps another waiting")
		} else {
			l()
		}
		if l, ok := asks(t, b, "a", budget.Cost{Bytes: mega, Work: time.Millisecond}); !ok {
			t.Error("what is quick has to wait")
		} else {
			l()
		}
		leave()
		if _, ok := asks(t, b, "a", budget.Cost{Bytes: mega, Work: 2 * timeout}); ok {
			t.Error("it would be cut off")
		}
		inside := 0
		for i := range 100 {
			if _, ok := asks(t, b, fmt.Sprint("caller ", i), budget.Cost{Bytes: mega, Work: time.Second}); ok {
				inside++
			}
		}
		if most := 2 * runtime.GOMAXPROCS(0); inside != most {
			t.Errorf("%d were let in, not %d", inside, most)
		}
	})
}

// Responses that wait for their caller's share keep out none that has room. One caller
// leaves half of the queue to others.
func TestFullQueue(t *testing.T) {
	for _, callers := range [][]string{{"a"}, {"a", "b"}} {
		synctest.Test(t, func(t *testing.T) {
			b := budget.New(400*mega, timeout)
			var all sync.WaitGroup
			var in, refused atomic.Int64
			ask := func(caller string) {
				leave, ok := asks(t, b, caller, budget.Cost{Bytes: 40 * mega})
				if !ok {
					refused.Add(1)
					return
				}
				time.Sleep(100 * time.Millisecond)
				leave()
				in.Add(1)
			}
			for _, caller := range callers {
				for range 51 { // one of which is let in at once
					all.Go(func() { ask(caller) })
				}
			}
			synctest.Wait()
			if refused.Load() != 0 {
				t.Errorf("%d of %v are refused", refused.Load(), callers)
			}
			begun := time.Now()
			ask("a")
			if refused.Load() != 1 || time.Since(begun) > 0 {
				t.Error("a has more than half of the queue")
			}
			if leave, ok := asks(t, b, "c", budget.Cost{Bytes: 2 * mega}); !ok || time.Since(begun) > 0 {
				t.Error("there is room for c")
			} else {
				leave()
			}
			all.Wait()
			if want := int64(51 * len(callers)); in.Load() != want {
				t.Errorf("%d were let in, not %d", in.Load(), want)
			}
		})
	}
}

// The bounds always hold, and every response is admitted or refused.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(400*mega, timeout)
		var used, in, refused atomic.Int64
		var all sync.WaitGroup
		const n = 400
		for i := range n {
			all.Go(func() {
				time.Sleep(time.Duration(i*37%n) * 20 * time.Millisecond)
				size := int64(1+i*i%40) * mega
				leave, ok := asks(t, b, fmt.Sprint("caller ", i%7), budget.Cost{Bytes: size, Work: time.Duration(i%5) * time.Second})
				if !ok {
					refused.Add(1)
					return
				}
				if now := used.Add(size); now > 100*mega {
					t.Errorf("%d MB are used", now/mega)
				}
				time.Sleep(time.Duration(i%11) * 100 * time.Millisecond)
				used.Add(-size)
				leave()
				in.Add(1)
			})
		}
		all.Wait()
		if in.Load()+refused.Load() != n || in.Load() < n/4 {
			t.Errorf("%d were let in, and %d refused", in.Load(), refused.Load())
		}
		leave, ok := asks(t, b, "", budget.Cost{Bytes: 100 * mega, Work: timeout})
		if !ok {
			t.Fatal("not all of it was given back")
		}
		leave()
	})
}
