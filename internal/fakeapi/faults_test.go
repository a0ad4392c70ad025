package fakeapi_test

import (
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestInjectedAnswers(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		list := func() error {
			_, err := r.typed.CoreV1().Pods("").List(r.ctx, metav1.ListOptions{})
			return err
		}
		forbidden := apierrors.NewForbidden(podsGVR.GroupResource(), "", errors.New("no"))
		remove := r.cluster.Inject(fakeapi.On("list", podsGVR, fakeapi.StatusFault(forbidden)))
		if err := list(); !apierrors.IsForbidden(err) {
			r.Errorf("got %v, want Forbidden", err)
		}
		_, err := r.typed.CoreV1().ConfigMaps("").List(r.ctx, metav1.ListOptions{})
		r.must(err)
		remove()
		r.must(list())

		// client-go does what Retry-After says.
		start := time.Now()
		r.cluster.ResetCounts()
		busy := apierrors.NewTooManyRequests("slow down", 7)
		remove = r.cluster.Inject(fakeapi.Times(2, fakeapi.On("list", podsGVR, fakeapi.StatusFault(busy))))
		r.must(list())
		if waited := time.Since(start); waited != 14*time.Second || r.cluster.Count("list", podsGVR) != 3 {
			r.Errorf("%d requests in %v, want 3 in 14s", r.cluster.Count("list", podsGVR), waited)
		}
		remove()

		r.cluster.Inject(fakeapi.Times(1, fakeapi.On("list", podsGVR, &fakeapi.Fault{Delay: time.Minute})))
		start = time.Now()
		r.must(list())
		if waited := time.Since(start); waited != time.Minute {
			r.Errorf("a request delayed by a minute took %v", waited)
		}
	})
}

func TestBrokenResponses(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.create(pod("default", "a", "", corev1.PodRunning))
		r.create(pod("default", "b", "", corev1.PodRunning))
		raw := func() ([]byte, error) {
			resp, err := (&http.Client{Transport: r.config.Transport}).Get(r.config.Host + "/api/v1/pods")
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return io.ReadAll(resp.Body)
		}
		remove := r.cluster.Inject(fakeapi.On("list", podsGVR, &fakeapi.Fault{Drop: true}))
		if _, err := raw(); !errors.Is(err, io.EOF) {
			r.Errorf("dropped: got %v, want EOF", err)
		}
		remove()
		remove = r.cluster.Inject(fakeapi.On("list", podsGVR, &fakeapi.Fault{CutAfter: 50}))
		if body, err := raw(); !errors.Is(err, io.ErrUnexpectedEOF) || len(body) != 50 {
			r.Errorf("cut: got %d bytes, %v, want 50 and an unexpected EOF", len(body), err)
		}
		remove()
		_, err := raw()
		r.must(err)

		// One whole event, and then half a one.
		r.cluster.Inject(fakeapi.On("watch", podsGVR, &fakeapi.Fault{CutAfterEvents: 1}))
		w, err := r.typed.CoreV1().Pods("").Watch(r.ctx, metav1.ListOptions{})
		r.must(err)
		r.expect(w, "ADDED a", "end")
	})
}

func TestWatchesEnd(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		start := func() interface {
			expect(want ...string)
		} {
			w, err := r.typed.CoreV1().Pods("").Watch(r.ctx, metav1.ListOptions{ResourceVersion: r.cluster.ResourceVersion()})
			r.must(err)
			synctest.Wait()
			return expecting{func(want ...string) { r.Helper(); r.expect(w, want...) }}
		}
		w := start()
		r.create(pod("default", "a", "", corev1.PodRunning))
		if n := r.cluster.CloseWatches(podsGVR); n != 1 {
			r.Errorf("closed %d watches", n)
		}
		w.expect("ADDED a", "end")
		w = start()
		r.cluster.FailWatches(podsGVR, apierrors.NewResourceExpired("gone"))
		w.expect("ERROR 410 Expired", "end")
		w = start()
		r.cluster.AbortWatches(podsGVR)
		w.expect("end")
		synctest.Wait()
		if n := r.cluster.OpenWatches(podsGVR); n != 0 {
			r.Errorf("%d watches are open", n)
		}
	})
}

type expecting struct{ f func(...string) }

func (e expecting) expect(want ...string) { e.f(want...) }

func TestDown(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		w, err := r.typed.CoreV1().Pods("").Watch(r.ctx, metav1.ListOptions{ResourceVersion: r.cluster.ResourceVersion()})
		r.must(err)
		synctest.Wait()
		r.cluster.SetDown(true)
		r.expect(w, "end")
		if _, err := r.typed.CoreV1().Pods("").Watch(r.ctx, metav1.ListOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
			r.Errorf("got %v, want connection refused", err)
		}
		r.cluster.SetDown(false)
		_, err = r.typed.CoreV1().Pods("").List(r.ctx, metav1.ListOptions{})
		r.must(err)
	})
}

func TestEventsTwice(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.create(pod("default", "a", "", corev1.PodRunning))
		r.cluster.Inject(fakeapi.On("watch", podsGVR, &fakeapi.Fault{Twice: true, CutAfterEvents: 3}))
		w, err := r.typed.CoreV1().Pods("").Watch(r.ctx, metav1.ListOptions{})
		r.must(err)
		r.expect(w, "ADDED a", "ADDED a")
		r.create(pod("default", "b", "", corev1.PodRunning))
		r.expect(w, "ADDED b", "end")
	})
}

func TestWatchListThatNeverEnds(t *testing.T) {
	inBubble(t, fakeapi.Options{BookmarkInterval: time.Second}, func(r *rig) {
		r.create(pod("default", "a", "", corev1.PodRunning))
		r.cluster.Inject(fakeapi.On("watch", podsGVR, &fakeapi.Fault{NoInitialEventsEnd: true, NoBookmarks: true}))
		w, err := r.typed.CoreV1().Pods("").Watch(r.ctx, watchList())
		r.must(err)
		r.expect(w, "ADDED a")
		time.Sleep(time.Minute)
		r.quiet(w)
		w.Stop()
	})
}
