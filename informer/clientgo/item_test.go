package clientgo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
)

// A store uses only the key, whatever the names of the objects are.
func TestStoreKeepsObjectsWithAnyKey(t *testing.T) {
	named := func(key string) any {
		namespace, name, ok := strings.Cut(key, "/")
		if !ok {
			namespace, name = "", key
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	keyOf := func(obj any) (string, error) {
		switch o := obj.(type) {
		case *corev1.Pod:
			if key, ok := o.Annotations["key"]; ok {
				return key, nil
			}
			return cache.MetaNamespaceKeyFunc(o)
		case string:
			return o, nil
		}
		return "", errors.New("no key")
	}
	called := func(key string, obj any) any {
		obj.(*corev1.Pod).Annotations = map[string]string{"key": key}
		return obj
	}
	objects := map[string]any{
		"n/a": named("n/a"), "a": named("a"), "n/b": called("n/b", named("nn/b")), "nn/c": called("nn/c", named("n/n/c")),
		"n": called("n", named("n/")), "n/": called("n/", named("n/x")), "nx": called("nx", named("n/x")), "text": "text", "n/text": "n/text",
	}
	ours, theirs := clientgo.NewStore(keyOf), cache.NewStore(keyOf)
	for round := range 2 { // the first adds, the second replaces
		for key, o := range objects {
			for _, s := range []cache.Store{ours, theirs} {
				if err := s.Add(o); err != nil {
					t.Fatalf("round %d, %s: %v", round, key, err)
				}
			}
		}
	}
	sorted := func(s cache.Store) string {
		keys := s.ListKeys()
		slices.Sort(keys)
		return fmt.Sprint(keys)
	}
	if sorted(ours) != sorted(theirs) || len(ours.List()) != len(objects) {
		t.Errorf("the keys are %s, in client-go's %s", sorted(ours), sorted(theirs))
	}
	for key, o := range objects {
		if got, ok, err := ours.Get(o); got != o || !ok || err != nil {
			t.Errorf("under %q is %v, %v, %v", key, got, ok, err)
		}
	}
	for key, o := range objects {
		if err := ours.Delete(o); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := ours.GetByKey(key); ok {
			t.Errorf("%q is still there", key)
		}
	}
	if left := ours.ListKeys(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// A caller that only knows the key of an object deletes it by a tombstone.
func TestDeleteByTombstone(t *testing.T) {
	s := clientgo.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
	if err := s.Add(pod); err != nil {
		t.Fatal(err)
	}
	if keys, err := s.IndexKeys(cache.NamespaceIndex, "n"); err != nil || !slices.Equal(keys, []string{"n/a"}) {
		t.Errorf("the index has %v, %v", keys, err)
	}
	if err := s.Delete(cache.DeletedFinalStateUnknown{Key: "n/a"}); err != nil {
		t.Fatal(err)
	}
	if keys, err := s.IndexKeys(cache.NamespaceIndex, "n"); err != nil || len(keys) > 0 || len(s.List()) > 0 {
		t.Errorf("the index has %v, %v, and the store %v", keys, err, s.List())
	}
}
