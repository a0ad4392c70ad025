package clientgo_test

import (
	"net/url"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/clientgo"
)

// streams is a source whose watches are streams written by the test, and whose
// lists are all the same.
type streams struct {
	mu     sync.Mutex
	asked  []string
	opened chan *watch.FakeWatcher
}

func (s *streams) List(opts metav1.ListOptions) (runtime.Object, error) {
	s.note("list rv=" + opts.ResourceVersion)
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*pod("listed", "1")}}, nil
}

func (s *streams) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		s.note("watchlist rv=" + opts.ResourceVersion)
	} else {
		s.note("watch rv=" + opts.ResourceVersion)
	}
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
	s.opened <- w
	return w, nil
}

func (s *streams) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
}

// expect compares the requests so far.
func (s *streams) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.asked, want) {
		t.Errorf("asked for %q, want %q", s.asked, want)
	}
}

func bookmark(version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

func at(p *corev1.Pod, version string) *corev1.Pod {
	p.ResourceVersion = version
	return p
}

// streaming runs an informer of this package on streams.
func streaming(t *testing.T, test func(s *streams, inf cache.SharedIndexInformer, l *recordingHandler)) {
	synctest.Test(t, func(t *testing.T) {
		s := &streams{opened: make(chan *watch.FakeWatcher, 100)}
		inf := clientgo.NewSharedIndexInformer(s, &corev1.Pod{}, 0, nil)
		l := &recordingHandler{t: t}
		if _, err := inf.AddEventHandler(l); err != nil {
			t.Fatal(err)
		}
		stop := inBackground(t, inf.RunWithContext)
		test(s, inf, l)
		stop()
	})
}

func TestTheInitialEventsAreAList(t *testing.T) {
	streaming(t, func(s *streams, inf cache.SharedIndexInformer, l *recordingHandler) {
		w := <-s.opened
		w.Add(at(pod("a", "1"), "5"))
		w.Add(at(pod("b", "1"), "3"))
		w.Modify(at(pod("a", "2"), "6"))
		w.Add(at(pod("c", "1"), "6"))
		w.Delete(at(pod("c", "1"), "7"))
		l.expect()
		if inf.HasSynced() || inf.LastSyncResourceVersion() != "" {
			t.Error("synced before the end of the initial events")
		}
		w.Action(watch.Bookmark, bookmark("7"))
		l.expect("add a=2 initial", "add b=1 initial")
		if inf.LastSyncResourceVersion() != "7" || inf.GetStore().LastStoreSyncResourceVersion() != "7" {
			t.Error("the version is not that of the bookmark")
		}
		w.Modify(at(pod("b", "2"), "8"))
		l.expect("update b=1 b=2")
		s.expect(t, "watchlist rv=")
		w.Stop() // a regular end: the next watch resumes
		s.expect(t, "watchlist rv=", "watch rv=8")
	})
}

func TestInitialEventsWithoutEndAreListed(t *testing.T) {
	streaming(t, func(s *streams, inf cache.SharedIndexInformer, l *recordingHandler) {
		w := <-s.opened
		w.Add(at(pod("a", "1"), "5"))
		time.Sleep(20 * time.Second)
		w.Add(at(pod("b", "1"), "6")) // slow, but not silent
		time.Sleep(20 * time.Second)
		s.expect(t, "watchlist rv=")
		time.Sleep(11 * time.Second)
		s.expect(t, "watchlist rv=", "list rv=0", "watch rv=9")
		l.expect("add listed=1 initial")
		if !w.IsStopped() {
			t.Error("the stream was left open")
		}
	})
}

func TestBrokenStreamsAreNotReopenedInALoop(t *testing.T) {
	streaming(t, func(s *streams, inf cache.SharedIndexInformer, l *recordingHandler) {
		for range 2 {
			w := <-s.opened
			w.Add(at(pod("a", "1"), "5"))
			w.Stop()
		}
		s.expect(t, "watchlist rv=", "watchlist rv=", "list rv=0", "watch rv=9")
		l.expect("add listed=1 initial")
	})
}

// TestExpiredVersionIsDroppedOnce: when the server does not know the last
// version, the informer asks for the newest state, and afterwards for none
// older than that.
func TestExpiredVersionIsDroppedOnce(t *testing.T) {
	expired := &apierrors.NewResourceExpired("too old").ErrStatus
	streaming(t, func(s *streams, inf cache.SharedIndexInformer, l *recordingHandler) {
		w := <-s.opened
		w.Action(watch.Bookmark, bookmark("5"))
		w.Error(expired)
		w = <-s.opened // at version 5
		w.Error(expired)
		w = <-s.opened // at no version
		w.Action(watch.Bookmark, bookmark("7"))
		w.Error(expired)
		<-s.opened
		s.expect(t, "watchlist rv=", "watchlist rv=5", "watchlist rv=", "watchlist rv=7")
	})
}

// TestBusyServersAreNotListed: when the server is busy or unreachable, the
// informer waits and then resumes the watch.
func TestBusyServersAreNotListed(t *testing.T) {
	for name, err := range map[string]error{
		"429": apierrors.NewTooManyRequests("busy", 1), "refused": &url.Error{Op: "Get", URL: "https://server", Err: syscall.ECONNREFUSED},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFlakyServer()
				server.noWatchList = true
				inf := clientgo.NewSharedIndexInformer(server, &corev1.Pod{}, 0, nil)
				stop := inBackground(t, inf.RunWithContext)
				synctest.Wait()
				server.fault(&fault{verb: "watch", times: 3, after: -1, err: err})
				server.drop(apierrors.NewTooManyRequests("busy", 1))
				if s := observe(t, inf); s.Phase != informer.Waiting || s.Errors != 1 {
					t.Errorf("it does not wait: %+v", s)
				}
				time.Sleep(time.Minute)
				if s := observe(t, inf); s.Phase != informer.Watching || s.Lists != 1 || s.Errors != 4 || s.Watches != 2 {
					t.Errorf("it is %+v", s)
				}
				stop()
			})
		})
	}
}
