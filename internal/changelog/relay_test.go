package changelog

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestRelay checks that readers that come and go while the log grows miss nothing,
// read nothing twice and are not called after they have left, and that the relay's
// goroutine ends with the last reader and starts again with the next.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New[int](0)
		var relay Relay[int]
		var tail atomic.Pointer[Position[int]]
		tail.Store(l.Tail())
		for round := range 3 {
			until := 200 * (round + 1)
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					// Some come later, some go earlier.
					for at := tail.Load(); int(at.Seq) < until-200+2*i; at = tail.Load() {
						<-at.Ready()
					}
					at := tail.Load()
					most := until
					if i%3 == 0 {
						most = min(int(at.Seq)+10, until)
					}
					var mu sync.Mutex
					next, left, enough := int(at.Seq), false, make(chan struct{})
					over := sync.OnceFunc(func() { close(enough) })
					leave := relay.Join(at, func() {
						mu.Lock()
						defer mu.Unlock()
						if left {
							t.Error("read is called after leave has returned")
						}
						for b := at.Next(); b != nil; b = at.Next() {
							for _, e := range b.Events {
								if e != next {
									t.Errorf("%d comes where %d should", e, next)
								}
								next++
							}
							at = b.End
						}
						if next >= most {
							over()
						}
					})
					<-enough
					leave()
					mu.Lock()
					left = true
					mu.Unlock()
				})
			}
			all.Go(func() {
				for n := until - 200; n < until; n += 2 {
					_, announce := l.Append([]int{n, n + 1}, Changes, uint64(n+1), true)
					announce()
					tail.Store(l.Tail())
				}
			})
			all.Wait()
			synctest.Wait()
			if relay.stop != nil {
				t.Error("the relay runs without readers")
			}
		}
	})
}
