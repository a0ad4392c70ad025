package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func TestHandlersGetEventsInOrder(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		r.source.Add(pod("a", "1"))
		r.source.Add(pod("b", "1"))
		early := r.handle(cache.HandlerOptions{})
		if r.inf.HasSynced() || early.reg.HasSynced() {
			r.Error("synced before it ran")
		}
		r.run()
		early.expect("~add a=1 initial", "~add b=1 initial")
		if !r.inf.HasSynced() || !early.reg.HasSynced() {
			r.Error("not synced")
		}
		r.source.Modify(pod("a", "2"))
		r.source.Delete(pod("b", "1"))
		r.source.Add(pod("c", "1"))
		early.expect("update a=1 a=2", "delete b=1", "add c=1")
		late := r.handle(cache.HandlerOptions{})
		late.expect("~add a=2 initial", "~add c=1 initial")
		if !late.reg.HasSynced() {
			r.Error("the late handler has not synced")
		}
		r.source.Modify(pod("c", "2"))
		late.expect("update c=1 c=2")
		early.expect("update c=1 c=2")
	})
}

func TestStoreIsAheadOfHandlers(t *testing.T) {
	byColor := cache.Indexers{"color": func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Labels["color"]}, nil }}
	onBoth(t, cache.SharedIndexInformerOptions{Indexers: byColor}, func(r *rig) {
		l := r.handle(cache.HandlerOptions{})
		l.before = func(line string) {
			kind, rest, _ := strings.Cut(line, " ")
			name, color, _ := strings.Cut(rest[strings.LastIndexByte(rest, ' ')+1:], "=")
			_, held, _ := r.inf.GetStore().GetByKey("ns/" + name)
			found, _ := r.inf.GetIndexer().ByIndex("color", color)
			if gone := kind == "delete"; held == gone || (len(found) == 0) != gone {
				r.Errorf("at %q the store has it: %t, and the index finds %d", line, held, len(found))
			}
		}
		r.run()
		r.source.Add(pod("a", "1"))
		synctest.Wait()
		r.source.Modify(pod("a", "2"))
		synctest.Wait()
		r.source.Delete(pod("a", "2"))
		l.expect("add a=1", "update a=1 a=2", "delete a=2")
	})
}

func TestBlockedHandlerDelaysOnlyItself(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		release := make(chan struct{})
		slow, fast := r.handle(cache.HandlerOptions{}), r.handle(cache.HandlerOptions{})
		slow.before = func(string) { <-release }
		r.run()
		var all []string
		for n := range 100 {
			r.source.Add(pod(fmt.Sprint("p", n), "1"))
			all = append(all, fmt.Sprintf("add p%d=1", n))
		}
		fast.expect(all...)
		slow.expect()
		close(release)
		slow.expect(all...)
	})
}

func TestRemovedHandlerGetsNoEvents(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		at, release := make(chan struct{}, 9), make(chan struct{})
		l, other := r.handle(cache.HandlerOptions{}), r.handle(cache.HandlerOptions{})
		l.before = func(string) {
			at <- struct{}{}
			<-release
		}
		r.run()
		r.source.Add(pod("a", "1"))
		<-at
		r.source.Add(pod("b", "1"))
		synctest.Wait()
		r.must(r.inf.RemoveEventHandler(l.reg)) // during a call of the handler
		ended := make(chan error)
		go func() { ended <- cache.ShutDownEventHandler(r.inf, l.reg) }()
		synctest.Wait()
		select {
		case <-ended:
			r.Error("the shutdown did not wait for the handler")
		default:
		}
		close(release)
		r.must(<-ended)
		r.source.Add(pod("c", "1"))
		l.expect("add a=1")
		other.expect("add a=1", "add b=1", "add c=1")
		r.must(r.inf.RemoveEventHandler(l.reg))
	})
}

func TestAddedAndRemovedHandlersGetEachEventOnce(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		r.run()
		var churn, comers sync.WaitGroup
		churn.Go(func() {
			there := map[string]bool{}
			for n := range 300 {
				p := pod(fmt.Sprint("p", n*n%13), fmt.Sprint(n))
				switch {
				case !there[p.Name]:
					r.source.Add(p)
				case n%3 == 0:
					r.source.Delete(p)
				default:
					r.source.Modify(p)
				}
				there[p.Name] = !there[p.Name] || n%3 != 0
				time.Sleep(time.Microsecond)
			}
		})
		var logs []*recordingHandler
		var mu sync.Mutex
		for n := range 20 {
			comers.Go(func() {
				time.Sleep(time.Duration(n) * 7 * time.Microsecond)
				// Lines are not compared but applied: a missing or repeated
				// event does not fit the state.
				l := &recordingHandler{t: r.T}
				reg, err := r.inf.AddEventHandler(l)
				if err != nil {
					r.Error(err)
					return
				}
				if n%3 == 0 {
					time.Sleep(10 * time.Microsecond)
					_ = cache.ShutDownEventHandler(r.inf, reg)
					return
				}
				mu.Lock()
				logs = append(logs, l)
				mu.Unlock()
			})
		}
		churn.Wait()
		comers.Wait()
		synctest.Wait()
		for _, l := range logs {
			for _, o := range r.inf.GetStore().List() {
				if p := o.(*corev1.Pod); l.state[p.Name] != nameAndColor(p) {
					r.Errorf("a handler believes in %q, the store holds %q", l.state[p.Name], nameAndColor(p))
				}
			}
			if len(l.state) != len(r.inf.GetStore().List()) {
				r.Errorf("a handler believes in %d pods", len(l.state))
			}
		}
	})
}

func TestRelistDeliversDifference(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		for _, name := range []string{"gone", "other", "same", "stays"} {
			r.source.Add(pod(name, "1"))
		}
		l := r.handle(cache.HandlerOptions{})
		r.run()
		l.expect("~add gone=1 initial", "~add other=1 initial", "~add same=1 initial", "~add stays=1 initial")
		r.source.DeleteDropWatch(pod("gone", "1"))
		r.source.ModifyDropWatch(pod("same", "2"))
		r.source.DeleteDropWatch(pod("other", "1"))
		r.source.AddDropWatch(reborn(pod("other", "2")))
		r.source.AddDropWatch(pod("new", "1"))
		r.source.ResetWatch()
		time.Sleep(time.Minute)
		l.expect("tombstone ns/gone gone=1",
			"~update other=1 other=2", "~update same=1 same=2", "~add new=1",
			"~update stays=1 stays=1") // no resync has been due yet, so it still gets updates that change nothing
	})
}

func TestResyncs(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{ResyncPeriod: 10 * time.Second}, func(r *rig) {
		r.source.Add(pod("a", "1"))
		never := r.handle(cache.HandlerOptions{ResyncPeriod: ptr.To(time.Duration(0))})
		three := r.handle(cache.HandlerOptions{ResyncPeriod: ptr.To(3 * time.Second)}) // checks every 3s from now on
		ten := r.handle(cache.HandlerOptions{})
		r.run()
		for _, l := range []*recordingHandler{never, three, ten} {
			l.expect("add a=1 initial")
		}
		late := r.handle(cache.HandlerOptions{ResyncPeriod: ptr.To(time.Second)}) // gets 3s
		late.expect("add a=1 initial")
		time.Sleep(2900 * time.Millisecond)
		three.expect()
		late.expect()
		time.Sleep(200 * time.Millisecond)
		three.expect("update a=1 a=1")
		late.expect("update a=1 a=1")
		ten.expect()
		r.source.Modify(pod("a", "2"))
		ten.expect("update a=1 a=2")
		time.Sleep(9 * time.Second)
		three.expect("update a=1 a=2", "update a=2 a=2", "update a=2 a=2", "update a=2 a=2")
		ten.expect("update a=2 a=2")
		never.expect("update a=1 a=2")

		// Handlers whose resync was not due at the last check get no updates
		// for objects that a list finds unchanged.
		r.source.ResetWatch()
		time.Sleep(2500 * time.Millisecond)
		never.expect()
	})
}

func TestPanicLosesOneEvent(t *testing.T) {
	crash := utilruntime.ReallyCrash
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = crash }()
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		l, other := r.handle(cache.HandlerOptions{}), r.handle(cache.HandlerOptions{})
		l.before = func(line string) {
			if line == "add a=1" {
				panic("at a")
			}
		}
		r.run()
		begun := time.Now()
		r.source.Add(pod("a", "1"))
		r.source.Add(pod("b", "1"))
		other.expect("add a=1", "add b=1")
		l.expect()
		time.Sleep(1100 * time.Millisecond)
		l.expect("add b=1")
		if time.Since(begun) > 2*time.Second {
			r.Error("it took too long to go on")
		}
	})
}

func TestTransforms(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		r.source.Add(pod("a", "1"))
		r.must(r.inf.SetTransform(func(obj any) (any, error) {
			p, ok := obj.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("a %T", obj)
			}
			if p.Labels["color"] == "bad" {
				return nil, errors.New("bad color")
			}
			p.Labels["color"] += "x"
			return p, nil
		}))
		l := r.handle(cache.HandlerOptions{})
		r.run()
		l.expect("add a=1x initial")
		r.source.Modify(pod("a", "bad")) // left out
		r.source.Add(pod("b", "1"))
		l.expect("add b=1x")
		r.source.Delete(pod("b", "2"))
		l.expect("delete b=2x")
		if err := r.inf.SetTransform(nil); err == nil {
			r.Error("the transform of a running informer was changed")
		}
	})
}

func TestExternalWritesAreNotDelivered(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		r.must(r.inf.GetStore().Add(pod("before", "1")))
		early := r.handle(cache.HandlerOptions{})
		early.expect()
		early.state = map[string]string{"before": "before=1"}
		r.source.Add(pod("a", "1"))
		r.run()
		early.expect("tombstone ns/before before=1", "add a=1 initial")
		r.must(r.inf.GetStore().Add(pod("b", "1")))
		early.expect()
		late := r.handle(cache.HandlerOptions{})
		late.expect("~add a=1 initial", "~add b=1 initial")
		r.must(r.inf.GetStore().Delete(pod("b", "1")))
		late.expect()
	})
}

func TestStopping(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
		release := make(chan struct{})
		at := make(chan struct{}, 9)
		l := r.handle(cache.HandlerOptions{})
		l.before = func(string) {
			at <- struct{}{}
			<-release
		}
		r.run()
		r.source.Add(pod("a", "1"))
		r.source.Add(pod("b", "1"))
		<-at
		r.stop()
		synctest.Wait()
		select {
		case <-r.done:
			r.Error("it did not wait for the handler")
		default:
		}
		if !r.inf.IsStopped() {
			r.Error("it does not say that it has stopped")
		}
		close(release)
		<-r.done
		l.expect("add a=1") // and no more
		if _, err := r.inf.AddEventHandler(l); err == nil || !strings.HasSuffix(err.Error(), "was not added to shared informer because it has stopped already") {
			r.Error("a handler was added after the end:", err)
		}
		if err := r.inf.AddIndexers(cache.Indexers{}); err == nil {
			r.Error("an index was added after the end")
		}
		r.inf.RunWithContext(context.Background()) // returns at once
		r.must(r.inf.RemoveEventHandler(l.reg))
		if !slices.Contains(r.inf.GetStore().ListKeys(), "ns/a") {
			r.Error("the store has been emptied")
		}
	})
}

func TestErrorsReachTheHandler(t *testing.T) {
	onBoth(t, cache.SharedIndexInformerOptions{ObjectDescription: "pods of a test"}, func(r *rig) {
		r.source.ListError = errors.New("no list for you")
		var got []string
		r.must(r.inf.SetWatchErrorHandlerWithContext(func(_ context.Context, reflector *cache.Reflector, err error) {
			got = append(got, reflector.TypeDescription()+": "+err.Error())
			if reflector.Name() == "" {
				r.Error("the reflector has no name")
			}
		}))
		r.run()
		time.Sleep(10 * time.Second)
		r.halt()
		if len(got) < 3 || len(got) > 8 || got[0] != "pods of a test: failed to list pods of a test: no list for you" {
			r.Errorf("the handler got %q", got)
		}
		if r.inf.HasSynced() {
			r.Error("synced without a list")
		}
	})
}
