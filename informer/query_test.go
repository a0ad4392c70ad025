package informer_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// TestIndexesAgreeWithAScan asks random questions of an informer large enough
// to index, and answers them by looking at every object.
func TestIndexesAgreeWithAScan(t *testing.T) {
	t.Run("decoded", func(t *testing.T) { indexesAgree(t) })
	t.Run("compact", func(t *testing.T) { indexesAgree(t, informer.Compact()) })
	t.Run("with owners", func(t *testing.T) { indexesAgree(t, informer.IndexOwners()) })
	t.Run("compact with owners", func(t *testing.T) { indexesAgree(t, informer.Compact(), informer.IndexOwners()) })
}

func indexesAgree(t *testing.T, opts ...informer.Option) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for i := range 400 {
			cm := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%d", i%5), Name: fmt.Sprintf("cm-%03d", i), Labels: map[string]string{"app": fmt.Sprint(i % 7)}},
				Data:       map[string]string{"v": fmt.Sprint(i % 3)},
			}
			if i%2 == 0 {
				cm.Labels["even"] = ""
			}
			for _, owner := range ownersOf(i) {
				cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Any", Name: owner, UID: types.UID(owner)})
			}
			if i%50 == 0 {
				cm.Labels["rare"] = fmt.Sprint(i)
			}
			_, err := r.server.Create(cm)
			r.must(err)
		}
		inf := r.configMapInformer(opts...)
		byValue, err := inf.AddIndex("value", func(values []string, cm *corev1.ConfigMap) []string { return append(values, cm.Data["v"]) })
		r.must(err)
		if _, err := inf.AddIndex("value", nil); err == nil {
			t.Error("two indexes have one name")
		}
		r.must(inf.Start(r.ctx))
		all := inf.List(informer.Query{})
		same := func(a, b *corev1.ConfigMap) bool { return informer.Key(a) == informer.Key(b) }
		selectors := []string{"", "app=3", "app in (1,2,9)", "app=3,even", "app=3,!even", "rare=100", "rare=100,app=2", "rare,app!=1", "app notin (1,2)", "even=", "nothing=here", "app=1,app=2"}
		rapid.Check(t, func(t *rapid.T) {
			selector, err := labels.Parse(rapid.SampledFrom(selectors).Draw(t, "selector"))
			if err != nil {
				t.Fatal(err)
			}
			q := informer.Query{
				Namespace: rapid.SampledFrom([]string{"", "ns-1", "ns-4", "ns"}).Draw(t, "namespace"),
				Labels:    selector,
				Limit:     rapid.SampledFrom([]int{0, 0, 1, 3, 1000}).Draw(t, "limit"),
			}
			if rapid.Bool().Draw(t, "page") {
				q.After = informer.Key(all[rapid.IntRange(0, len(all)-1).Draw(t, "after")])
			}
			value := ""
			if rapid.Bool().Draw(t, "by") {
				value = rapid.SampledFrom([]string{"0", "1", "2", "3"}).Draw(t, "value")
				q.By = byValue.Is(value)
			}
			if rapid.Bool().Draw(t, "owned") {
				q.Owner = types.UID(rapid.SampledFrom([]string{"owner-0", "owner-4", "owner-12", "none"}).Draw(t, "owner"))
			}
			var want []string
			for _, cm := range all {
				if (q.Namespace == "" || cm.Namespace == q.Namespace) && selector.Matches(labels.Set(cm.Labels)) && informer.Key(cm) > q.After &&
					(q.Owner == "" || slices.ContainsFunc(cm.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == q.Owner })) &&
					(value == "" || cm.Data["v"] == value) && (q.Limit == 0 || len(want) < q.Limit) {
					want = append(want, informer.Key(cm))
				}
			}
			before := make([]*corev1.ConfigMap, rapid.IntRange(0, 3).Draw(t, "there already"), rapid.SampledFrom([]int{3, 200}).Draw(t, "room"))
			answer := inf.Append(before, q)
			if !slices.Equal(answer[:len(before)], before) || !slices.EqualFunc(answer[len(before):], inf.List(q), same) {
				t.Fatalf("%+v appends something else than it lists", q)
			}
			var got []string
			for _, cm := range answer[len(before):] {
				got = append(got, informer.Key(cm))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v finds %v, a scan %v", q, got, want)
			}
		})
		if got := byValue.Values(); !slices.Equal(got, []string{"0", "1", "2"}) {
			t.Errorf("the index has the values %v", got)
		}
		moved, _ := inf.Get("ns-0", "cm-000")
		moved = moved.DeepCopy()
		moved.Labels["rare"], moved.Data["v"] = "moved", "new"
		moved.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Any", Name: "other", UID: "other"}}
		_, err = r.server.Update(moved)
		r.must(err)
		synctest.Wait()
		if got := byValue.Get("new"); len(got) != 1 || got[0].Name != "cm-000" {
			t.Errorf("the index did not follow an update: %v", got)
		}
		if got := inf.List(informer.Query{Labels: labels.SelectorFromSet(labels.Set{"rare": "0"})}); len(got) != 0 {
			t.Errorf("a label that was changed is still found: %v", got)
		}
		if got := inf.List(informer.Query{Labels: labels.SelectorFromSet(labels.Set{"rare": "moved"})}); len(got) != 1 {
			t.Errorf("a changed label is not found: %v", got)
		}
		if got := inf.List(informer.Query{Owner: "other"}); len(got) != 1 || got[0].Name != "cm-000" {
			t.Errorf("a changed owner is not found: %v", got)
		}
		if got := inf.List(informer.Query{Owner: "owner-0"}); slices.ContainsFunc(got, func(cm *corev1.ConfigMap) bool { return cm.Name == "cm-000" }) {
			t.Error("an object is found under an owner that it no longer has")
		}
		pinned := inf.View()
		defer pinned.Release()
		before := len(pinned.List(informer.Query{Owner: "owner-4"}))
		for _, cm := range pinned.List(informer.Query{Owner: "owner-4"}) {
			r.must(r.server.Delete(configMaps, cm.Namespace, cm.Name))
		}
		synctest.Wait()
		if got := inf.List(informer.Query{Owner: "owner-4"}); len(got) != 0 {
			t.Errorf("deleted objects are still found: %v", got)
		}
		if got := pinned.List(informer.Query{Owner: "owner-4"}); len(got) != before {
			t.Errorf("a pinned view has lost %d of %d", before-len(got), before)
		}
	})
}

// ownersOf returns the owners of the i-th object: none, one or several.
func ownersOf(i int) (owners []string) {
	if i%4 == 0 {
		owners = append(owners, fmt.Sprint("owner-", i%16))
	}
	if i%24 == 0 {
		owners = append(owners, "owner-4", "owner-100")
	}
	return owners
}
