package informer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// counting counts the objects that a selector is asked about: with an index on
// its only key there are none.
type counting struct {
	labels.Selector
	asked int
}

func (c *counting) Matches(l labels.Labels) bool {
	c.asked++
	return c.Selector.Matches(l)
}

// indexed has an informer of more objects than are scanned, each of which has the
// labels key-0 to key-99.
func indexed(t *testing.T, test func(r *rig, ask func(key string) (byIndex bool))) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		const objects = 300
		for i := range objects {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("cm-%03d", i), Labels: map[string]string{}}}
			for k := range 100 {
				cm.Labels[fmt.Sprintf("key-%d", k)] = fmt.Sprint(i % 3)
			}
			_, err := r.server.Create(cm)
			r.must(err)
		}
		inf := r.configMapInformer()
		r.must(inf.Start(r.ctx))
		test(r, func(key string) bool {
			selector := &counting{Selector: labels.SelectorFromSet(labels.Set{key: "1"})}
			want := objects / 3
			if len(key) < len("key-") || key[:len("key-")] != "key-" {
				want = 0
			}
			if found := inf.List(informer.Query{Labels: selector}); len(found) != want {
				t.Fatalf("%s: %d objects are found of %d", key, len(found), want)
			}
			return selector.asked == 0
		})
	})
}

func TestLabelIndexesAreOfTheKeysInUse(t *testing.T) {
	indexed(t, func(r *rig, ask func(string) bool) {
		key := func(i int) string { return fmt.Sprint("key-", i) }
		use := func(i, times int) (last bool) {
			for range times {
				last = ask(key(i))
			}
			return last
		}
		for i := range 32 {
			if !use(i, 100+i) {
				t.Errorf("%s has no index, and there is room", key(i))
			}
		}
		have := func() (n int) {
			for i := range 32 {
				if ask(key(i)) {
					n++
				}
			}
			return n
		}
		// What is asked for once, or no object has, displaces nothing.
		for i := 32; i < 100; i++ {
			use(i, 1)
		}
		for i := range 5000 {
			ask(fmt.Sprint("junk-", i%50))
			if i%100 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		if n := have(); n != 32 {
			t.Errorf("%d of 32 indexes have survived a flood of junk", n)
		}
		// Nor does a flood of keys that objects have, but for a few a second.
		for i := 32; i < 100; i++ {
			use(i, 200)
		}
		if n := have(); n < 32-6 {
			t.Errorf("%d of 32 indexes have survived a flood", n)
		}
	})
}

func TestLabelIndexesComeAndGo(t *testing.T) {
	indexed(t, func(r *rig, ask func(string) bool) {
		key := func(i int) string { return fmt.Sprint("key-", i) }
		for range 100 {
			for i := range 32 {
				ask(key(i))
			}
		}
		round := func(wanted string, others ...int) (after int) {
			for after = 1; !ask(wanted); after++ {
				if after == 10_000 {
					t.Fatalf("%s is not given an index", wanted)
				}
				for _, i := range others {
					ask(key(i))
				}
				time.Sleep(10 * time.Millisecond)
			}
			return after
		}
		most := []int{}
		for i := 1; i < 32; i++ {
			most = append(most, i)
		}
		round(key(50), most...) // instead of key-0, which nobody asks for
		for _, i := range most {
			if !ask(key(i)) {
				t.Errorf("key-%d has gone, which is in use", i)
			}
		}
		if ask(key(0)) {
			t.Error("key-0 has an index, and there would be 33")
		}
		round(key(0), most...) // instead of key-50
		if ask(key(50)) {
			t.Error("key-50 has an index, and there would be 33")
		}
	})
}

// Whatever is asked for in whatever order, answers are right and indexes few, and
// a key that is asked for more than all others comes to have one.
func TestLabelIndexesModel(t *testing.T) {
	indexed(t, func(r *rig, ask func(string) bool) {
		rapid.Check(t, func(t *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(t, "steps") {
				k, times := rapid.IntRange(0, 120).Draw(t, "key"), rapid.IntRange(1, 30).Draw(t, "times")
				name := fmt.Sprint("key-", k)
				if k >= 100 {
					name = fmt.Sprint("junk-", k)
				}
				for range times {
					ask(name)
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			}
			favourite := fmt.Sprint("key-", rapid.IntRange(0, 99).Draw(t, "favourite"))
			for i := 0; !ask(favourite); i++ {
				if i == 2000 {
					t.Fatalf("%s has no index, though nothing else is asked for", favourite)
				}
				time.Sleep(100 * time.Millisecond)
			}
			n := 0
			for k := range 100 {
				if ask(fmt.Sprint("key-", k)) {
					n++
				}
			}
			if n > 32+1 { // one may have come while they were counted
				t.Fatalf("%d indexes", n)
			}
		})
	})
}

func TestListByLabelLeavesNoGarbage(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for i := range 300 {
			_, err := r.server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i), Labels: map[string]string{"app": fmt.Sprint(i % 30)}}})
			r.must(err)
		}
		inf := r.configMapInformer()
		r.must(inf.Start(r.ctx))
		q := informer.Query{Labels: labels.SelectorFromSet(labels.Set{"app": "7"})}
		dst := slices.Grow(inf.List(q), 10)
		if n := testing.AllocsPerRun(100, func() { dst = inf.Append(dst[:0], q) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
