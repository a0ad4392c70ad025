package informer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestStatusShowsSlowLoops(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		ctx, cancel := context.WithCancel(r.ctx)
		gate, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for range inf.Events(ctx) {
				<-gate
			}
		}()
		synctest.Wait() // it follows from the beginning
		r.must(inf.Start(r.ctx))
		r.set("default", "a", "1")
		r.set("default", "a", "2")
		synctest.Wait()
		if lag := inf.Status().Lag; lag != 2 {
			t.Errorf("a loop that has come to nothing yet has a lag of %d", lag)
		}
		close(gate)
		synctest.Wait()
		if lag := inf.Status().Lag; lag != 0 {
			t.Errorf("a loop that has come to everything has a lag of %d", lag)
		}
		cancel()
		<-done
	})
}
