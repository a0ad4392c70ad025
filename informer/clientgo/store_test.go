package clientgo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
)

// onBothStores runs a test on client-go's indexer and on ours.
func onBothStores(t *testing.T, options []cache.StoreOption, test func(*testing.T, cache.Indexer)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			byColor := func(obj any) ([]string, error) {
				color := obj.(*corev1.Pod).Labels["color"]
				if color == "none" {
					return nil, errors.New("no color")
				}
				return strings.Split(color, ","), nil
			}
			test(t, k.indexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"color": byColor}, options...))
		})
	}
}

// namesAndColors formats pods.
func namesAndColors(objects []any) string {
	var all []string
	for _, o := range objects {
		all = append(all, nameAndColor(o))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestStores(t *testing.T) {
	onBothStores(t, nil, func(t *testing.T, s cache.Indexer) {
		for _, p := range []*corev1.Pod{at(pod("a", "x"), "1"), at(pod("b", "x,y"), "2"), at(pod("c", "z"), "3"), at(pod("a", "y"), "4")} {
			if err := s.Add(p); err != nil {
				t.Fatal(err)
			}
		}
		check := func(what string, want, got any) {
			t.Helper()
			if fmt.Sprint(want) != fmt.Sprint(got) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		check("all", "a=y b=x,y c=z", namesAndColors(s.List()))
		check("version", "4", s.LastStoreSyncResourceVersion())
		found, err := s.ByIndex("color", "y")
		check("by index", "a=y b=x,y <nil>", fmt.Sprint(namesAndColors(found), " ", err))
		found, err = s.Index("color", pod("", "x,y,q"))
		check("index", "a=y b=x,y <nil>", fmt.Sprint(namesAndColors(found), " ", err))
		names, err := s.IndexKeys("color", "x")
		check("index keys", "[ns/b] <nil>", fmt.Sprint(names, " ", err))
		values := s.ListIndexFuncValues("color")
		slices.Sort(values)
		check("index values", []string{"x", "y", "z"}, values)
		_, err = s.ByIndex("nope", "x")
		check("no such index", "Index with name nope does not exist", err)
		if err := s.AddIndexers(cache.Indexers{"color": nil, "new": nil}); err == nil || !strings.HasPrefix(err.Error(), "indexer conflict") {
			t.Error("an index was added twice:", err)
		}
		check("indexers", 1, len(s.GetIndexers()))

		if err := s.Delete(at(pod("b", ""), "5")); err != nil {
			t.Error(err)
		}
		_, ok, _ := s.GetByKey("ns/b")
		check("deleted", false, ok)
		check("version", "5", s.LastStoreSyncResourceVersion())
		s.Bookmark("6")
		check("version", "6", s.LastStoreSyncResourceVersion())
		if err := s.Replace([]any{pod("d", "x"), pod("e", "x"), pod("d", "q")}, "7"); err != nil {
			t.Error(err)
		}
		check("replaced", "d=q e=x", namesAndColors(s.List()))
		check("version", "7", s.LastStoreSyncResourceVersion())
		var keyErr cache.KeyError
		if err := s.Add("no object"); !errors.As(err, &keyErr) {
			t.Errorf("adding what has no key: %v", err)
		}
		if err := s.Replace([]any{pod("f", "x"), 5}, "8"); !errors.As(err, &keyErr) || namesAndColors(s.List()) != "d=q e=x" {
			t.Errorf("replacing with what has no key: %v", err)
		}
		failed := s.(cache.TransactionStore).Transaction(
			cache.Transaction{Type: cache.TransactionTypeAdd, Object: pod("g", "x")},
			cache.Transaction{Type: cache.TransactionTypeAdd, Object: 5},
			cache.Transaction{Type: cache.TransactionTypeDelete, Object: pod("e", "")},
		)
		check("transaction", []int{0, 2}, failed.SuccessfulIndices)
		check("after it", "d=q g=x", namesAndColors(s.List()))
		defer func() {
			if p := recover(); p == nil {
				t.Error("an index function that fails did not panic")
			}
		}()
		_ = s.Add(pod("h", "none"))
	})
}

func TestStoresTransform(t *testing.T) {
	options := []cache.StoreOption{cache.WithTransformer(func(obj any) (any, error) {
		p := obj.(*corev1.Pod).DeepCopy()
		if p.Labels["color"] == "bad" {
			return nil, errors.New("bad color")
		}
		p.Labels["color"] += "x"
		return p, nil
	})}
	onBothStores(t, options, func(t *testing.T, s cache.Indexer) {
		if err := s.Add(pod("a", "1")); err != nil {
			t.Error(err)
		}
		if err := s.Update(pod("a", "bad")); err == nil || err.Error() != "transforming: bad color" {
			t.Error("the transform's error is", err)
		}
		if err := s.Replace([]any{pod("b", "1"), pod("c", "2")}, "3"); err != nil || namesAndColors(s.List()) != "b=1x c=2x" {
			t.Error(namesAndColors(s.List()), err)
		}
	})
}

func TestStoresCanBeReadWhileWritten(t *testing.T) {
	onBothStores(t, nil, func(t *testing.T, s cache.Indexer) {
		var all sync.WaitGroup
		for w := range 3 {
			all.Go(func() {
				for n := range 300 {
					p := pod(fmt.Sprint("p", n%10), fmt.Sprint(w))
					switch {
					case n%7 == 0:
						_ = s.Delete(p)
					case n%50 == 1:
						_ = s.Replace([]any{p}, "1")
					default:
						_ = s.Add(p)
					}
				}
			})
			all.Go(func() {
				for range 300 {
					for _, o := range s.List() {
						_ = nameAndColor(o)
					}
					found, _ := s.ByIndex("color", fmt.Sprint(w))
					for _, o := range found {
						if o.(*corev1.Pod).Labels["color"] != fmt.Sprint(w) {
							t.Error("the index found another color")
						}
					}
				}
			})
		}
		all.Wait()
	})
}

func TestInformersWithOneHandler(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := fcache.NewFakeControllerSource()
				defer source.Shutdown()
				source.Add(pod("a", "1"))
				l := &recordingHandler{t: t}
				store, controller := k.single(cache.InformerOptions{ListerWatcher: source, ObjectType: &corev1.Pod{}, Handler: l, ResyncPeriod: time.Minute})
				l.before = func(line string) {
					// The store has the object of the event, and nothing newer.
					name, want, _ := strings.Cut(line[strings.LastIndexByte(strings.TrimSuffix(line, " initial"), ' ')+1:], "=")
					want, _, _ = strings.Cut(want, " ")
					if o, ok, _ := store.GetByKey("ns/" + name); ok == strings.HasPrefix(line, "delete") || ok && o.(*corev1.Pod).Labels["color"] != want {
						t.Errorf("at %q the store holds %v", line, o)
					}
				}
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					controller.Run(stop)
				}()
				l.expect("add a=1 initial")
				if !controller.HasSynced() || controller.LastSyncResourceVersion() != "1" {
					t.Error("not synced")
				}
				for n := 2; n < 6; n++ {
					source.Modify(pod("a", fmt.Sprint(n)))
				}
				source.Delete(pod("a", "5"))
				source.Add(pod("b", "1"))
				l.expect("update a=1 a=2", "update a=2 a=3", "update a=3 a=4", "update a=4 a=5", "delete a=5", "add b=1")
				time.Sleep(61 * time.Second)
				l.expect("update b=1 b=1")
				close(stop)
				<-done
			})
		})
	}
}
