package informer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// stuck is a handler that does not return until the gate is opened.
func stuck(d *diary[*corev1.ConfigMap], gate <-chan struct{}) informer.Handler[*corev1.ConfigMap] {
	return informer.HandlerFunc[*corev1.ConfigMap](func(e informer.Event[*corev1.ConfigMap]) {
		d.Handle(e)
		<-gate
	})
}

// A handler is told of one namespace while another cannot be listed. If it does
// not return, the error of Start does not wait for it; Stop does.
func TestStartDoesNotWaitForHandlers(t *testing.T) {
	for name, fault := range map[string]*fakeapi.Fault{"in vain": {Drop: true}, "refused": fakeapi.StatusFault(forbidden("watch"))} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				r.set("a", "x", "1")
				late := make(chan struct{}) // so that the handler is at an event by then
				mend := r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
					if req.Namespace != "b" {
						return nil
					}
					f := *fault
					f.Until = late
					return &f
				})
				inf := r.configMapInformer(informer.InNamespace("a", "b"))
				gate, d := make(chan struct{}), &diary[*corev1.ConfigMap]{}
				inf.AddHandler(stuck(d, gate))
				time.AfterFunc(time.Second, func() { close(late) })
				begun := time.Now()
				err := inf.Start(r.within(20 * time.Second))
				if name == "refused" && (!apierrors.IsForbidden(err) || time.Since(begun) > 2*time.Second) || name == "in vain" && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("start ended after %v with %v", time.Since(begun), err)
				}
				if told := d.read(); len(told) != 1 {
					t.Errorf("the handler was told %q", told)
				}
				if err := inf.Stop(r.within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("stop did not wait for the handler: %v", err)
				}
				// Started again meanwhile, it is told of the next event when it
				// has returned from this one.
				mend()
				r.set("b", "x", "1")
				r.must(inf.Start(r.ctx))
				r.expect(d)
				close(gate)
				r.expect(d, "ADDED b/x >1 initial", "SYNCED")
				r.must(inf.Stop(r.ctx))
			})
		})
	}
}

// While the informer is emptied its handlers are told, and may do with it what
// handlers do.
func TestHandlersActWhileTheInformerIsEmptied(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.set("default", "b", "1")
		inf := r.configMapInformer()
		d, other := &diary[*corev1.ConfigMap]{}, &diary[*corev1.ConfigMap]{}
		var reg *informer.Registration
		reg = inf.AddHandler(informer.HandlerFunc[*corev1.ConfigMap](func(e informer.Event[*corev1.ConfigMap]) {
			d.Handle(e)
			if e.Type == informer.Deleted {
				_ = inf.Status()
				inf.AddHandler(other)
				now, cancel := context.WithCancel(r.ctx)
				cancel()
				_ = reg.Remove(now)
			}
		}))
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "ADDED default/b >1 initial", "SYNCED")
		r.must(inf.Empty(r.within(time.Minute)))
		r.expect(d, "DELETED default/a 1>1 tombstone")
		r.must(inf.Start(r.ctx))
		r.expect(d)
		r.expect(other, "ADDED default/a >1 initial", "ADDED default/b >1 initial", "SYNCED")
	})
}

// Who starts an informer that is being emptied waits until it is empty.
func TestStartWhileEmptying(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		inf := r.configMapInformer()
		gate, d := make(chan struct{}), &diary[*corev1.ConfigMap]{}
		inf.AddHandler(informer.HandlerFunc[*corev1.ConfigMap](func(e informer.Event[*corev1.ConfigMap]) {
			d.Handle(e)
			if e.Type == informer.Deleted {
				<-gate
			}
		}))
		r.must(inf.Start(r.ctx))
		emptied := make(chan error)
		go func() { emptied <- inf.Empty(r.ctx) }()
		synctest.Wait()
		if err := inf.Start(r.within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("starting it meanwhile gives %v", err)
		}
		time.AfterFunc(time.Second, func() { close(gate) })
		r.must(inf.Start(r.within(time.Minute)))
		r.must(<-emptied)
		r.expect(d, "ADDED default/a >1 initial", "SYNCED", "DELETED default/a 1>1 tombstone", "ADDED default/a >1 initial")
	})
}

// What a handler was going to be told of is let go of when it is removed, also
// if the informer does not run.
func TestRemovedHandlerHoldsNothing(t *testing.T) {
	for _, when := range []string{"running", "stopped"} {
		t.Run(when, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				r.set("default", "a", "1")
				r.set("default", "b", "1")
				inf := r.configMapInformer()
				r.must(inf.Start(r.ctx))
				gate, d := make(chan struct{}), &diary[*corev1.ConfigMap]{}
				reg := inf.AddHandler(stuck(d, gate))
				synctest.Wait()
				time.AfterFunc(time.Second, func() { close(gate) })
				if when == "stopped" {
					r.must(inf.Stop(r.ctx))
				}
				r.must(reg.Remove(r.ctx))
				r.expect(d, "ADDED default/a >1 initial") // b was to come

				old, _ := inf.Get("default", "b")
				held := weak.Make(old)
				old = nil
				if when == "stopped" {
					r.must(inf.Start(r.ctx))
				}
				r.set("default", "b", "2")
				r.holds(inf, "default/a=1", "default/b=2")
				runtime.GC()
				if held.Value() != nil {
					t.Error("an old version of an object is still held")
				}
				runtime.KeepAlive(reg)
			})
		})
	}
}

// Stop waits for a handler that has been removed and is not done.
func TestStopWaitsForRemovedHandlers(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		inf := r.configMapInformer()
		gate, d := make(chan struct{}), &diary[*corev1.ConfigMap]{}
		reg := inf.AddHandler(stuck(d, gate))
		r.must(inf.Start(r.ctx))
		synctest.Wait()
		if err := reg.Remove(r.within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("removing a handler that does not return gives %v", err)
		}
		if err := inf.Stop(r.within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopping gives %v", err)
		}
		close(gate)
		r.must(inf.Stop(r.ctx))
		r.expect(d, "ADDED default/a >1 initial")
	})
}

// A handler that ends its goroutine, as a failed assertion does, is the end of
// that handler only.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(informer.HandlerFunc[*corev1.ConfigMap](func(informer.Event[*corev1.ConfigMap]) { runtime.Goexit() }))
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.set("default", "a", "1")
		r.expect(d, "SYNCED", "ADDED default/a >1")
		r.must(inf.Stop(r.within(time.Minute)))
	})
}

func TestEventsSinceIsForOneLoop(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		version := r.set("default", "a", "1")
		inf := r.configMapInformer(informer.Retain(10))
		r.must(inf.Start(r.ctx))
		r.set("default", "a", "2")
		synctest.Wait()
		events, err := inf.EventsSince(r.ctx, version)
		r.must(err)
		var told []string
		for range 2 {
			for e := range events {
				told = append(told, line(e))
				break
			}
		}
		if fmt.Sprint(told) != "[MODIFIED default/a 1>2]" {
			t.Errorf("told %q", told)
		}
	})
}

// An informer that began with a version goes on where it was, like any other.
func TestFromResumesAfterAStop(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		version := r.set("default", "a", "1")
		r.set("default", "a", "2")
		inf := r.configMapInformer(informer.From(version))
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		start := func() {
			go func() { _ = inf.Run(r.ctx) }()
			synctest.Wait()
		}
		start()
		r.set("default", "b", "1")
		r.delete("default", "b")
		r.expect(d, "MODIFIED default/a >2", "ADDED default/b >1", "DELETED default/b 1>1")
		r.must(inf.Stop(r.ctx))
		start()
		r.set("default", "a", "3")
		r.expect(d, "MODIFIED default/a 2>3")
	})
}
