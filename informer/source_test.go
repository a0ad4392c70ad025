package informer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// shelf is a source of config maps in this process.
type shelf struct {
	objects []*corev1.ConfigMap
	version int
	changes chan informer.Change[*corev1.ConfigMap]
	fail    chan error // ends a watch
	refuse  error      // of lists
	from    []string   // the versions watches began with
}

func newShelf(objects ...*corev1.ConfigMap) *shelf {
	return &shelf{objects: objects, version: 10, changes: make(chan informer.Change[*corev1.ConfigMap]), fail: make(chan error)}
}

func (s *shelf) List(_ context.Context, each func(*corev1.ConfigMap) error) (string, error) {
	for _, o := range s.objects {
		if err := each(o); err != nil {
			return "", err
		}
	}
	return strconv.Itoa(s.version), s.refuse
}

func (s *shelf) Watch(ctx context.Context, version string, each func(informer.Change[*corev1.ConfigMap]) error) error {
	s.from = append(s.from, version)
	for {
		select {
		case c := <-s.changes:
			if err := each(c); err != nil {
				return err
			}
		case err := <-s.fail:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *shelf) tell(t informer.EventType, o *corev1.ConfigMap) {
	s.changes <- informer.Change[*corev1.ConfigMap]{Type: t, Object: o}
}

func card(name, value string, version int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: "u-", ResourceVersion: strconv.Itoa(version)}, Data: map[string]string{"v": value}}
}

func (r *rig) shelfInformer(s *shelf, opts ...informer.Option) *informer.Informer[*corev1.ConfigMap] {
	r.Helper()
	inf, err := informer.NewFromSource("shelf", s, append(opts, informer.Logger(slog.New(slog.NewTextHandler(r.log, nil))))...)
	r.must(err)
	r.stopAfter(inf)
	return inf
}

func TestCustomSource(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		a := card("a", "1", 3)
		s := newShelf(a, card("b", "1", 7))
		inf := r.shelfInformer(s)
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED n/a >1 initial", "ADDED n/b >1 initial", "SYNCED")
		if got, _ := inf.Get("n", "a"); got != a {
			t.Error("the object is not kept as it came")
		}
		s.tell(informer.Added, card("c", "1", 11))
		s.tell(informer.Updated, card("a", "2", 12))
		s.tell(informer.Deleted, card("b", "1", 13))
		s.changes <- informer.Change[*corev1.ConfigMap]{Type: informer.Bookmark, ResourceVersion: "20"}
		r.expect(d, "ADDED n/c >1", "MODIFIED n/a 1>2", "DELETED n/b 1>1")
		if status := inf.Status(); status.Cluster != "shelf" || status.Resource.Resource != "configmaps" || status.ResourceVersion != "20" || status.Phase != informer.Watching {
			t.Errorf("the status is %+v", status)
		}

		s.fail <- errors.New("torn") // goes on where it was
		time.Sleep(2 * time.Minute)
		s.tell(informer.Updated, card("a", "3", 21))
		r.expect(d, "MODIFIED n/a 2>3")
		s.objects, s.version = []*corev1.ConfigMap{card("a", "4", 30)}, 31
		s.fail <- apierrors.NewResourceExpired("too old") // lists again
		time.Sleep(2 * time.Minute)
		r.expect(d, "DELETED n/c 1>1 tombstone", "MODIFIED n/a 3>4")
		if want := []string{"10", "20", "31"}; !slices.Equal(s.from, want) {
			t.Errorf("it watched from %v, not from %v", s.from, want)
		}
	})
}

// A source need not know that watches end: they do, in good order.
func TestQuietSourceIsNoFailure(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		s := newShelf()
		inf := r.shelfInformer(s)
		r.must(inf.Start(r.ctx))
		time.Sleep(time.Hour)
		synctest.Wait()
		if status := inf.Status(); status.Errors != 0 || status.Lists != 1 || status.Watches < 6 || r.log.String() != "" {
			t.Errorf("after an hour the status is %+v, and the log\n%s", status, r.log)
		}
	})
}

func TestSourceThatRefuses(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		s := newShelf()
		s.refuse = apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("not for you"))
		if err := r.shelfInformer(s).Start(r.ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "list configmaps of cluster shelf") {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestSourceWithFilterAndTransform(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		s := newShelf(card("a", "x", 1), card("b", "no", 2))
		inf := r.shelfInformer(s,
			informer.Transform(func(cm *corev1.ConfigMap) (*corev1.ConfigMap, error) {
				if cm.Data["v"] == "bad" {
					return nil, errors.New("cannot be transformed")
				}
				cm.Data["v"] = strings.ToUpper(cm.Data["v"])
				return cm, nil
			}),
			informer.Filter(func(cm *corev1.ConfigMap) bool { return cm.Data["v"] != "NO" }))
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED n/a >X initial", "SYNCED")
		s.tell(informer.Updated, card("b", "y", 11))
		s.tell(informer.Updated, card("a", "no", 12))
		r.expect(d, "ADDED n/b >Y", "DELETED n/a X>NO")
		s.tell(informer.Updated, card("b", "bad", 13))
		synctest.Wait()
		if status := inf.Status(); status.Phase != informer.Waiting || !strings.Contains(status.LastError.Error(), "watch configmaps of cluster shelf: transform n/b: cannot be transformed") {
			t.Errorf("a failing transform shows as %+v", status)
		}
	})
}

func TestBadUseOfASource(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for name, opt := range map[string]informer.Option{
			"InNamespace": informer.InNamespace("a"), "LabelSelector": informer.LabelSelector("a=b"), "FieldSelector": informer.FieldSelector("a=b"),
			"PageSize": informer.PageSize(10), "KeepManagedFields": informer.KeepManagedFields(),
		} {
			if _, err := informer.NewFromSource("shelf", newShelf(), opt); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("with %s it is made, with the error %v", name, err)
			}
		}
		s := newShelf()
		inf := r.shelfInformer(s)
		if err := inf.SetCluster(r.ctx, r.conn); err == nil || !strings.Contains(err.Error(), "configmaps of cluster shelf") {
			t.Errorf("it was made one of a cluster, with the error %v", err)
		}
		r.must(inf.Start(r.ctx))
		s.tell(informer.Synced, nil)
		synctest.Wait()
		if err := inf.Status().LastError; err == nil || !strings.Contains(err.Error(), "not SYNCED") {
			t.Errorf("an event that no source can tell gives %v", err)
		}
	})
}
