package main

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidings-io/tidings/informer"
)

// tape lists some pods and then plays updates of them, all decoded beforehand.
// It is a cache.ListerWatcher.
type tape struct {
	pods    []corev1.Pod
	updates []*corev1.Pod
	play    chan struct{} // closed to begin

	pace  time.Duration // between two updates; 0: as fast as they are taken
	begun []time.Time   // when each was handed over; nil: nobody asks
}

func newTape(pods, updates int) *tape {
	t := &tape{play: make(chan struct{})}
	pod := func(i, version int) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(i%100), Name: "pod-" + strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), ResourceVersion: strconv.Itoa(version),
		}}
	}
	for i := range pods {
		t.pods = append(t.pods, pod(i, i+1))
	}
	for i := range updates {
		p := pod(i%pods, pods+i+1)
		t.updates = append(t.updates, &p)
	}
	return t
}

// each hands the updates over, in their time.
func (t *tape) each(ctx context.Context, hand func(*corev1.Pod) error) error {
	select {
	case <-t.play:
	case <-ctx.Done():
		return ctx.Err()
	}
	start := time.Now()
	for i, p := range t.updates {
		if t.pace > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * t.pace)))
		}
		if t.begun != nil {
			t.begun[i] = time.Now()
		}
		if err := hand(p); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// IsWatchListSemanticsUnSupported tells reflectors to list.
func (t *tape) IsWatchListSemanticsUnSupported() bool { return true }

func (t *tape) List(metav1.ListOptions) (runtime.Object, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: t.version()}, Items: t.pods}, nil
}

func (t *tape) version() string { return strconv.Itoa(len(t.pods)) }

func (t *tape) Watch(metav1.ListOptions) (watch.Interface, error) {
	ch := make(chan watch.Event, watch.DefaultChanSize)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_ = t.each(ctx, func(p *corev1.Pod) error {
			select {
			case ch <- watch.Event{Type: watch.Modified, Object: p}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return stream{watch.NewProxyWatcher(ch), stop}, nil
}

// stream ends its player when it is stopped.
type stream struct {
	*watch.ProxyWatcher
	end func()
}

func (s stream) Stop() {
	s.end()
	s.ProxyWatcher.Stop()
}

// source is a tape for the library.
type source struct{ *tape }

func (s source) List(_ context.Context, each func(*corev1.Pod) error) (string, error) {
	for i := range s.pods {
		if err := each(&s.pods[i]); err != nil {
			return "", err
		}
	}
	return s.version(), nil
}

func (s source) Watch(ctx context.Context, _ string, each func(informer.Change[*corev1.Pod]) error) error {
	return s.each(ctx, func(p *corev1.Pod) error {
		return each(informer.Change[*corev1.Pod]{Type: informer.Updated, Object: p})
	})
}
