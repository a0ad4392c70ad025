package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type meta = metav1.PartialObjectMetadata

func thing(name, version string) *meta {
	return &meta{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version}}
}

var target = source.Target{Cluster: "test", Resource: schema.GroupVersionResource{Version: "v1", Resource: "things"}}

func failed(err error) error { return &source.Error{Target: target, Verb: "watch", Err: err} }

// script is a source that answers each request with the next of its answers, and notes
// the requests. After the last answer it does not answer any more.
type script struct {
	mu      sync.Mutex // guards asked
	asked   []string
	answers []answer
}

type answer struct {
	objects []*meta
	list    source.ListResult
	events  []source.Event[*meta]
	err     error
	silent  bool // no answer until the context ends
	pause   time.Duration
}

func (s *script) note(asked string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked)
}

func (s *script) next(ctx context.Context, asked string) (answer, error) {
	s.note(asked)
	if len(s.answers) == 0 || s.answers[0].silent {
		if len(s.answers) > 0 {
			s.answers = s.answers[1:]
		}
		<-ctx.Done()
		return answer{}, failed(context.Cause(ctx))
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a, nil
}

func (s *script) List(ctx context.Context, opts source.ListOptions, each func(*meta) error) (source.ListResult, error) {
	a, err := s.next(ctx, fmt.Sprintf("list limit=%d continue=%s", opts.Limit, opts.Continue))
	for _, o := range a.objects {
		if err == nil {
			err = each(o)
		}
	}
	return a.list, errors.Join(err, a.err)
}

func (s *script) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[*meta]) error) error {
	asked := "watch from=" + opts.ResourceVersion
	if opts.InitialEvents {
		asked = "watch list"
	}
	a, err := s.next(ctx, asked)
	if err != nil {
		return err
	}
	for _, e := range a.events {
		if a.pause > 0 {
			select {
			case <-time.After(a.pause):
			case <-ctx.Done():
				return failed(context.Cause(ctx))
			}
		}
		if err := each(e); err != nil {
			return err
		}
	}
	if a.err == nil { // the watch stays open
		<-ctx.Done()
		return failed(context.Cause(ctx))
	}
	if a.err == errEnd {
		return nil
	}
	return a.err
}

var errEnd = errors.New("the watch ends in good order")

func added(name, version string) source.Event[*meta] {
	return source.Event[*meta]{Type: source.Added, Object: thing(name, version)}
}

func end(version string) source.Event[*meta] {
	return source.Event[*meta]{Type: source.Bookmark, ResourceVersion: version, InitialEventsEnd: true}
}

// run runs a reflector for some time, and returns its deltas and its status.
func run(t *testing.T, s source.Source[*meta], opts reflector.Options, forTime time.Duration) (deltas []string, status reflector.Status) {
	t.Helper()
	queue := delta.NewQueue[*meta]()
	r := reflector.New(target, s, queue, opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	time.Sleep(forTime)
	synctest.Wait()
	status = r.Status()
	cancel()
	<-done
	queue.Close()
	for {
		batch, err := queue.Pop(t.Context())
		if err != nil {
			return deltas, status
		}
		for _, d := range batch {
			deltas = append(deltas, describe(d))
		}
	}
}

// describe is like "replaced a@1 b@2 at 3".
func describe(d delta.Delta[*meta]) string {
	what := map[delta.Type]string{delta.Added: "added", delta.Updated: "updated", delta.Deleted: "deleted", delta.Replaced: "replaced", delta.Bookmark: "bookmark", delta.Vanished: "vanished"}[d.Type]
	objects, version := []*meta{d.Object}, ""
	if d.List != nil {
		objects, version = d.List.Items, d.List.ResourceVersion
	}
	for _, o := range objects {
		switch {
		case o != nil:
			what += " " + o.Name + "@" + o.ResourceVersion
		case d.List != nil:
			what += " nil"
		}
	}
	if version != "" {
		what += " at " + version
	}
	return what
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n\t"), strings.Join(want, "\n\t"); g != w {
		t.Errorf("%s\n\t%s\nnot\n\t%s", what, g, w)
	}
}

// The initial events are one list as of their end, with the changes among them.
func TestChangesAmongInitialEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{events: []source.Event[*meta]{
			added("a", "1"), added("b", "2"), added("c", "3"),
			{Type: source.Modified, Object: thing("b", "5")}, {Type: source.Deleted, Object: thing("a", "6")}, {Type: source.Deleted, Object: thing("never seen", "6")},
			added("a", "7"), {Type: source.Deleted, Object: thing("c", "8")}, {Type: source.Bookmark, ResourceVersion: "8"},
			end("9"), {Type: source.Modified, Object: thing("a", "10")},
		}}}}
		deltas, status := run(t, s, reflector.Options{}, time.Second)
		expect(t, "it pushed", deltas, "replaced b@5 a@7 at 9", "updated a@10")
		if status.Phase != reflector.Watching || status.ResourceVersion != "10" || status.Received != 2 || status.Lists != 1 {
			t.Errorf("the status is %+v", status)
		}
	})
}

func TestContinueTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{
			{err: failed(apierrors.NewInvalid(schema.GroupKind{}, "", nil))},
			{objects: []*meta{thing("a", "1")}, list: source.ListResult{ResourceVersion: "5", Continue: "more", Remaining: 1}},
			{objects: []*meta{thing("b", "2")}, err: failed(apierrors.NewResourceExpired("too old"))},
			{objects: []*meta{thing("b", "6"), thing("c", "7")}, list: source.ListResult{ResourceVersion: "8"}},
		}}
		deltas, _ := run(t, s, reflector.Options{PageSize: 1}, time.Second)
		expect(t, "it asked", s.asked, "watch list", "list limit=1 continue=", "list limit=1 continue=more", "list limit=0 continue=", "watch from=8")
		expect(t, "it pushed", deltas, "replaced b@6 c@7 at 8")
	})
}

func TestPagesThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := answer{objects: []*meta{thing("a", "1")}, list: source.ListResult{ResourceVersion: "5", Continue: "same"}}
		s := &script{answers: []answer{{err: failed(apierrors.NewInvalid(schema.GroupKind{}, "", nil))}, page, page, page, page}}
		deltas, status := run(t, s, reflector.Options{}, time.Millisecond)
		expect(t, "it pushed", deltas)
		if status.Phase != reflector.Waiting || !strings.Contains(fmt.Sprint(status.Err), "continue token") {
			t.Errorf("the status is %+v", status)
		}
	})
}

// The reflector gives up on a bookmark that does not come, even if objects are created
// and deleted all the time.
func TestNoBookmarkAmongChanges(t *testing.T) {
	for name, order := range map[string][]string{"in order": {"a", "b", "c"}, "not in order": {"c", "a", "b"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := []source.Event[*meta]{added(order[0], "9"), added(order[1], "3"), added(order[2], "4")}
				for i := range 100 {
					busy := fmt.Sprint("b", i%7)
					events = append(events, added(busy, fmt.Sprint(100+2*i)), source.Event[*meta]{Type: source.Deleted, Object: thing(busy, fmt.Sprint(101+2*i))})
				}
				s := &script{answers: []answer{{events: events, pause: 3 * time.Second, err: errEnd}, {objects: []*meta{thing("a", "9")}, list: source.ListResult{ResourceVersion: "200"}}}}
				_, status := run(t, s, reflector.Options{}, 30*time.Second)
				if status.Phase != reflector.Watching {
					t.Errorf("the status is %+v", status)
				}
				expect(t, "it asked", s.asked, "watch list", "list limit=500 continue=", "watch from=200")
			})
		})
	}
}

// A list without a version, which some servers send, is not followed by a watch from the
// version of an earlier list.
func TestListWithoutAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := answer{err: failed(apierrors.NewResourceExpired("too old"))}
		s := &script{answers: []answer{
			{events: []source.Event[*meta]{added("a", "1"), end("5")}, pause: 6 * time.Second, err: apierrors.NewResourceExpired("too old")},
			expired, {objects: []*meta{thing("a", "1")}},
		}}
		_, status := run(t, s, reflector.Options{}, time.Minute)
		expect(t, "it asked", s.asked, "watch list", "watch list", "list limit=500 continue=", "watch from=")
		if status.ResourceVersion != "" {
			t.Errorf("the version is %q", status.ResourceVersion)
		}
	})
}

// A request that the server accepts and never answers fails in time.
func TestSilence(t *testing.T) {
	invalid := answer{err: failed(apierrors.NewInvalid(schema.GroupKind{}, "", nil))}
	t.Run("list", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []answer{invalid, {silent: true}}}
			_, status := run(t, s, reflector.Options{}, 2*time.Minute)
			if !strings.Contains(fmt.Sprint(status.Err), "sent nothing for 1m30s") || status.Errors != 1 {
				t.Errorf("the status is %+v", status)
			}
		})
	})
	t.Run("watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []answer{invalid, {list: source.ListResult{ResourceVersion: "5"}}, {silent: true}, {silent: true}}}
			_, status := run(t, s, reflector.Options{}, 11*time.Minute)
			if !strings.Contains(fmt.Sprint(status.Err), "did not end the watch in time") || status.Errors != 1 {
				t.Errorf("the status is %+v", status)
			}
			expect(t, "it asked", s.asked, "watch list", "list limit=500 continue=", "watch from=5", "watch from=5")
		})
	})
	t.Run("watch with bookmarks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // but does not end: as good as ended
			s := &script{answers: []answer{invalid, {list: source.ListResult{ResourceVersion: "5"}}, {events: []source.Event[*meta]{{Type: source.Bookmark, ResourceVersion: "6"}}}}}
			_, status := run(t, s, reflector.Options{}, 11*time.Minute)
			if status.Errors != 0 {
				t.Errorf("the status is %+v", status)
			}
			expect(t, "it asked", s.asked, "watch list", "list limit=500 continue=", "watch from=5", "watch from=6")
		})
	})
	t.Run("initial events that trickle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []answer{{pause: 8 * time.Second, events: []source.Event[*meta]{added("a", "1"), added("b", "2"), added("c", "3"), end("4")}}}}
			deltas, _ := run(t, s, reflector.Options{}, time.Minute)
			expect(t, "it pushed", deltas, "replaced a@1 b@2 c@3 at 4")
		})
	})
}

// No failure of the server makes the reflector send more requests.
func TestFailuresAreFollowedByBackoff(t *testing.T) {
	resource := schema.GroupResource{Resource: "things"}
	for name, err := range map[string]error{
		"expired": apierrors.NewResourceExpired("too old"), "gone": &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone}}, "not found": apierrors.NewNotFound(resource, ""),
		"internal": apierrors.NewInternalError(errors.New("oops")), "network": errors.New("connection refused"), "end": errEnd,
		"forbidden": apierrors.NewForbidden(resource, "", nil), "invalid": apierrors.NewInvalid(schema.GroupKind{}, "", nil),
		"too large": &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonTimeout, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}}},
		"decode":    &source.DecodeError{Err: errors.New("no object")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: []answer{{events: []source.Event[*meta]{end("5")}, pause: time.Second, err: errEnd}}}
				always := answer{err: failed(err)}
				if err == errEnd {
					always.err = errEnd
				}
				s.answers = append(s.answers, answer{events: []source.Event[*meta]{added("a", "6")}, pause: time.Minute, err: always.err})
				for range 10000 {
					s.answers = append(s.answers, always)
				}
				run(t, s, reflector.Options{}, 11*time.Minute)
				// 0.8 to 60 seconds between two attempts, each of which may be two requests.
				if len(s.asked) < 10 || len(s.asked) > 100 {
					t.Errorf("%d requests in ten minutes", len(s.asked))
				}
			})
		})
	}
}

// statusReader is a log handler that reads the status of the reflector.
type statusReader struct {
	slog.Handler
	read func()
}

func (h statusReader) Enabled(context.Context, slog.Level) bool { return true }

func (h statusReader) Handle(context.Context, slog.Record) error { h.read(); return nil }

func (h statusReader) WithAttrs([]slog.Attr) slog.Handler { return h }

func TestLoggerMayReadTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *reflector.Reflector[*meta]
		reads := 0
		log := slog.New(statusReader{read: func() { reads++; _ = r.Status() }})
		s := &script{answers: []answer{
			{events: []source.Event[*meta]{end("5")}, pause: 6 * time.Second, err: apierrors.NewResourceExpired("too old")},
			{events: []source.Event[*meta]{end("9")}},
		}}
		r = reflector.New(target, s, delta.NewQueue[*meta](), reflector.Options{Logger: log})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || reads == 0 {
			t.Errorf("it ended with %v after %d reads", err, reads)
		}
	})
}

// A server that does not know the version yet has been restored from a backup. It is
// listed again, and the list counts although it is older.
func TestVersionTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
		tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		s := &script{answers: []answer{
			{events: []source.Event[*meta]{added("a", "9"), end("9")}, err: errEnd},
			{err: failed(tooLarge)},
			{events: []source.Event[*meta]{added("a", "2"), end("3")}},
		}}
		deltas, status := run(t, s, reflector.Options{}, time.Minute)
		expect(t, "it asked", s.asked, "watch list", "watch from=9", "watch list")
		expect(t, "it pushed", deltas, "replaced a@9 at 9", "replaced a@2 at 3")
		if status.Phase != reflector.Watching || status.ResourceVersion != "3" {
			t.Errorf("it is %+v", status)
		}
	})
}

// A wait is over when the caller says so, but not one that the server has asked for.
func TestRetryEndsAWait(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"a broken connection": {errors.New("connection refused"), []string{"watch list", "watch list"}},
		"Retry-After":         {apierrors.NewTooManyRequests("later", 60), []string{"watch list"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: []answer{{err: c.err}}}
				r := reflector.New(target, s, delta.NewQueue[*meta](), reflector.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- r.Run(ctx) }()
				synctest.Wait()
				if got := r.Status().Phase; got != reflector.Waiting {
					t.Fatalf("it is %s", got)
				}
				r.Retry()
				synctest.Wait() // no time passes
				s.mu.Lock()
				expect(t, "it asked", s.asked, c.want...)
				s.mu.Unlock()
				cancel()
				<-done
			})
		})
	}
}
