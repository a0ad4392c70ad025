package indexer_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

type meta = metav1.PartialObjectMetadata

// thing makes an object. The namespaces sort differently by bytes of the key
// than by name alone, since '-' comes before '/'.
func thing(namespace, name string, uid, version int) *meta {
	return &meta{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		UID: types.UID(strconv.Itoa(uid)), ResourceVersion: strconv.Itoa(version),
		Labels: map[string]string{"third": strconv.Itoa(version % 3)},
	}}
}

// replay applies a batch to a state as a reader of the log would, checking that
// each event fits the state it finds.
func replay(t interface{ Fatalf(string, ...any) }, state map[string]*meta, b *changelog.Batch[indexer.Event[*meta]]) {
	for _, e := range b.Events {
		key := object.Key(e.Object.Namespace, e.Object.Name)
		have := state[key]
		switch e.Type {
		case indexer.Added:
			if have != nil {
				t.Fatalf("%s was added twice", key)
			}
			state[key] = e.Object
		case indexer.Updated:
			if have == nil || have != e.Old {
				t.Fatalf("%s was updated from %v, but was %v", key, e.Old, have)
			}
			if have.UID != e.Object.UID {
				t.Fatalf("%s became another object without being deleted", key)
			}
			state[key] = e.Object
		case indexer.Deleted:
			if have == nil || have != e.Old {
				t.Fatalf("%s was deleted from %v, but was %v", key, e.Old, have)
			}
			delete(state, key)
		}
	}
}

// byThird indexes an object by a label that changes often and by a value that some
// objects have twice.
func byThird(values []string, o *meta) []string {
	values = append(values, o.Labels["third"])
	if o.Name == "x" {
		values = append(values, "x", "x")
	}
	return values
}

// ownersOf gives an object hashes of owners that change often.
func ownersOf(hashes []uint64, o *meta) []uint64 {
	for _, value := range slices.Compact(byThird(nil, o)) {
		hashes = append(hashes, object.OwnerHash(value))
	}
	return hashes
}

// checkOwners compares the index of owners of a view with a scan.
func checkOwners(t *rapid.T, v *indexer.View[*meta], model map[string]*meta) {
	for _, owner := range []string{"0", "1", "2", "x", "none"} {
		var got, want []string
		for key, o := range v.Owned(object.OwnerHash(owner), "", "") {
			if model[key] != o {
				t.Fatalf("the index of owners has %v for %s, the view %v", o, key, model[key])
			}
			got = append(got, key)
		}
		for _, key := range slices.Sorted(maps.Keys(model)) {
			if slices.Contains(byThird(nil, model[key]), owner) {
				want = append(want, key)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the index of owners of the view of %d has %v under %s, not %v", v.ResourceVersion, got, owner, want)
		}
	}
}

// checkIndex compares an index of a view with a scan of what it ought to hold.
func checkIndex(t *rapid.T, v *indexer.View[*meta], name string, model map[string]*meta) {
	want := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(model)) {
		for _, value := range slices.Compact(byThird(nil, model[key])) {
			want[value] = append(want[value], key)
		}
	}
	if got := slices.Collect(v.IndexValues(name)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("the index %s of the view of %d has the values %v, not %v", name, v.ResourceVersion, got, want)
	}
	for _, value := range []string{"0", "1", "2", "x", "none"} {
		var got []string
		for key, o := range v.Indexed(name, value, "", "") {
			if model[key] != o {
				t.Fatalf("the index has %v for %s, the view %v", o, key, model[key])
			}
			got = append(got, key)
		}
		if !slices.Equal(got, want[value]) {
			t.Fatalf("the index %s of the view of %d has %v under %s, not %v", name, v.ResourceVersion, got, value, want[value])
		}
		if n := v.IndexedCount(name, value, 2); n != min(2, len(got)) {
			t.Fatalf("%d objects are counted as %d", len(got), n)
		}
		for i, key := range got {
			var rest []string
			for k := range v.Indexed(name, value, "", key) {
				rest = append(rest, k)
			}
			if !slices.Equal(rest, append([]string(nil), got[i+1:]...)) {
				t.Fatalf("under %s after %s come %v, not %v", value, key, rest, got[i+1:])
			}
		}
		var inNamespace, wantIn []string
		for k := range v.Indexed(name, value, "a/", "") {
			inNamespace = append(inNamespace, k)
		}
		for _, k := range got {
			if strings.HasPrefix(k, "a/") {
				wantIn = append(wantIn, k)
			}
		}
		if !slices.Equal(inNamespace, wantIn) {
			t.Fatalf("under %s in namespace a are %v, not %v", value, inNamespace, wantIn)
		}
	}
}

func contents(v *indexer.View[*meta]) map[string]*meta { return maps.Collect(v.All()) }

func same(a, b map[string]*meta) bool { return maps.Equal(a, b) }

// pin is a pinned View, and its contents when it was pinned.
type pin struct {
	view *indexer.View[*meta]
	want map[string]*meta
	rv   uint64
}

// TestModel runs random histories against a plain map. At every step:
//   - the store holds what the map holds, in order, by every way of reading;
//   - replaying the log from the start, or from any pinned view, gives the
//     store, and each event fits the state before it;
//   - pinned views still hold what they held;
//   - an index, made before or after, agrees with a scan, in pinned views too;
//   - resuming from any resourceVersion the log reaches gives what came after.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ix := indexer.New(indexer.Options[*meta]{Retain: 1000, Size: func(*meta) int { return 7 }, Owners: ownersOf})
		model := map[string]*meta{}
		version, uid := 100, 0
		start := ix.PinCursor()
		position := start.Tail()
		start.Release()
		replayed := map[string]*meta{}
		var pins []pin
		history := map[uint64]map[string]*meta{} // states by version, for resuming

		draw := func() (string, string) {
			return rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "namespace"), rapid.SampledFrom([]string{"x", "y", "z", "x-1"}).Draw(t, "name")
		}
		apply := func(deltas []delta.Delta[*meta]) {
			for _, d := range deltas {
				switch d.Type {
				case delta.Added, delta.Updated:
					model[object.Key(d.Object.Namespace, d.Object.Name)] = d.Object
				case delta.Deleted:
					delete(model, object.Key(d.Object.Namespace, d.Object.Name))
				case delta.Replaced:
					clear(model)
					for _, o := range d.List.Items {
						model[object.Key(o.Namespace, o.Name)] = o
					}
				}
			}
			ix.Apply(deltas)
		}
		change := func() delta.Delta[*meta] {
			ns, name := draw()
			version++
			have := model[object.Key(ns, name)]
			if have == nil || rapid.IntRange(0, 9).Draw(t, "recreate") == 0 {
				uid++
				return delta.Delta[*meta]{Type: delta.Added, Object: thing(ns, name, uid, version)}
			}
			id, _ := strconv.Atoi(string(have.UID))
			if rapid.Bool().Draw(t, "delete") {
				return delta.Delta[*meta]{Type: delta.Deleted, Object: thing(ns, name, id, version)}
			}
			return delta.Delta[*meta]{Type: delta.Updated, Object: thing(ns, name, id, version)}
		}
		relist := func() {
			version++
			next := maps.Clone(model)
			for range rapid.IntRange(0, 4).Draw(t, "unseen changes") {
				ns, name := draw()
				key := object.Key(ns, name)
				switch rapid.IntRange(0, 2).Draw(t, "unseen") {
				case 0:
					delete(next, key)
				default:
					uid++
					version++
					next[key] = thing(ns, name, uid, version)
				}
			}
			items := slices.Collect(maps.Values(next))
			// A list brings new copies of what is held already.
			for i, o := range items {
				items[i] = o.DeepCopy()
				next[object.Key(o.Namespace, o.Name)] = items[i]
			}
			ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: items, ResourceVersion: strconv.Itoa(version)}}})
			// What has not changed is kept as it was: same pointer.
			for key, o := range next {
				if had := model[key]; had != nil && had.UID == o.UID && had.ResourceVersion == o.ResourceVersion {
					next[key] = had
				}
			}
			model = next
		}

		if err := ix.AddIndex("early", byThird); err != nil {
			t.Fatal(err)
		}
		relist()
		late := false
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) { apply([]delta.Delta[*meta]{change()}) },
			"batch": func(t *rapid.T) {
				n := rapid.SampledFrom([]int{1, 2, 3, 6, 40}).Draw(t, "n")
				var deltas []delta.Delta[*meta]
				before := maps.Clone(model)
				for range n {
					d := change()
					deltas = append(deltas, d)
					// change reads the model, so update it
					key := object.Key(d.Object.Namespace, d.Object.Name)
					if d.Type == delta.Deleted {
						delete(model, key)
					} else {
						model[key] = d.Object
					}
				}
				model = before
				apply(deltas)
			},
			"again": func(t *rapid.T) { // delivered twice, as after a reconnect
				for _, o := range model {
					apply([]delta.Delta[*meta]{{Type: delta.Added, Object: o}})
					return
				}
			},
			"relist": func(t *rapid.T) { relist() },
			"bookmark": func(t *rapid.T) {
				version++
				apply([]delta.Delta[*meta]{{Type: delta.Bookmark, List: &delta.List[*meta]{ResourceVersion: strconv.Itoa(version)}}})
			},
			"pin": func(t *rapid.T) {
				v := ix.Pin()
				pins = append(pins, pin{v, maps.Clone(model), v.ResourceVersion})
			},
			"release": func(t *rapid.T) {
				if len(pins) == 0 {
					t.Skip("nothing pinned")
				}
				i := rapid.IntRange(0, len(pins)-1).Draw(t, "which")
				pins[i].view.Release()
				pins = slices.Delete(pins, i, i+1)
			},
			"index": func(t *rapid.T) {
				if err := ix.AddIndex("late", byThird); (err != nil) != late {
					t.Fatalf("adding an index: %v", err)
				}
				late = true
			},
			"empty": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "rarely") > 0 {
					t.Skip("not now")
				}
				ix.Empty()
				clear(model)
				history = map[uint64]map[string]*meta{}
				if ix.Latest().Synced {
					t.Fatalf("an empty store says it is synced")
				}
				relist()
			},
			"": func(t *rapid.T) {
				for b := position.Next(); b != nil; b = position.Next() {
					replay(t, replayed, b)
					position = b.End
				}
				if !same(replayed, model) {
					t.Fatalf("replaying the log gives %v, the source has %v", replayed, model)
				}
				now := ix.PinCursor()
				v := now.View
				defer v.Release()
				if got := contents(v); !same(got, model) {
					t.Fatalf("the store holds %v, the source has %v", got, model)
				}
				if position != now.Tail() {
					t.Fatalf("the newest view is not at the end of the log")
				}
				if v.Len() != len(model) || ix.Stats().Objects != len(model) || ix.Stats().Bytes != int64(7*len(model)) {
					t.Fatalf("%d objects are counted as %d, %+v", len(model), v.Len(), ix.Stats())
				}
				checkReads(t, ix, v, model)
				checkIndex(t, v, "early", model)
				checkOwners(t, v, model)
				if late {
					checkIndex(t, v, "late", model)
				}
				for _, p := range pins {
					checkIndex(t, p.view, "early", p.want)
					checkOwners(t, p.view, p.want)
					if p.view.HasIndex("late") {
						checkIndex(t, p.view, "late", p.want)
					}
					if got := contents(p.view); !same(got, p.want) {
						t.Fatalf("the view of %d held %v and now holds %v", p.rv, p.want, got)
					}
					for key := range model {
						if o, ok := p.view.Get(key); ok != (p.want[key] != nil) || o != p.want[key] {
							t.Fatalf("Get(%s) of the view of %d is %v, not %v", key, p.rv, o, p.want[key])
						}
					}
				}
				history[v.ResourceVersion] = maps.Clone(model)
				for rv, state := range history {
					at, ok := ix.Since(rv)
					if !ok {
						t.Fatalf("the log does not reach back to %d", rv)
					}
					state = maps.Clone(state)
					for b := at.Next(); b != nil; b = b.End.Next() {
						replay(t, state, b)
					}
					if !same(state, model) {
						t.Fatalf("resuming at %d gives %v, the source has %v", rv, state, model)
					}
				}
				if _, ok := ix.Since(v.ResourceVersion + 1); ok {
					t.Fatalf("the log claims to know the future")
				}
			},
		})
		for _, p := range pins {
			p.view.Release()
		}
	})
}

// checkReads compares every way of reading with the model.
func checkReads(t *rapid.T, ix *indexer.Indexer[*meta], v *indexer.View[*meta], model map[string]*meta) {
	keys := slices.Sorted(maps.Keys(model))
	var got []string
	for key := range v.All() {
		got = append(got, key)
	}
	if !slices.Equal(got, keys) {
		t.Fatalf("the order is %v, not %v", got, keys)
	}
	for _, ns := range []string{"a", "a-b", "b", "nowhere"} {
		var want []string
		for _, key := range keys {
			if strings.HasPrefix(key, ns+"/") {
				want = append(want, key)
			}
		}
		got = nil
		for key := range v.Namespace(ns) {
			got = append(got, key)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("namespace %s holds %v, not %v", ns, got, want)
		}
	}
	for i, after := range keys { // every page begins where the last ended
		got = nil
		for key := range v.From("", after) {
			got = append(got, key)
		}
		if !slices.Equal(got, append([]string(nil), keys[i+1:]...)) {
			t.Fatalf("after %s comes %v, not %v", after, got, keys[i+1:])
		}
	}
	for _, key := range []string{"a/x", "a/y", "a/z", "a-b/x", "b/x-1"} {
		if o, ok := ix.Get(key); ok != (model[key] != nil) || o != model[key] {
			t.Fatalf("Get(%s) is %v, not %v", key, o, model[key])
		}
	}
}

// TestReplaceOrder checks that the deletions of a relist come before its additions,
// so that a reader never holds more objects than exist.
func TestReplaceOrder(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	at := ix.Latest().Tail()
	list := func(version int, items ...*meta) *changelog.Batch[indexer.Event[*meta]] {
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: items, ResourceVersion: strconv.Itoa(version)}}})
		b := at.Next()
		at = b.End
		return b
	}
	first := list(10, thing("n", "a", 1, 3), thing("n", "b", 2, 4))
	for _, e := range first.Events {
		if !e.Initial || e.Type != indexer.Added || e.ResourceVersion != 10 {
			t.Errorf("the first list made the event %+v", e)
		}
	}
	second := list(20, thing("n", "c", 3, 15), thing("n", "b", 9, 16))
	var events []string
	for _, e := range second.Events {
		events = append(events, fmt.Sprintf("%d %s unseen=%v initial=%v", e.Type, e.Object.Name, e.Unseen, e.Initial))
	}
	want := []string{"3 a unseen=true initial=false", "1 c unseen=false initial=false", "3 b unseen=true initial=false", "1 b unseen=false initial=false"}
	if !slices.Equal(events, want) {
		t.Errorf("a relist made the events\n%s\nnot\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
	}
	if second.Kind != changelog.Relist || second.End.ResourceVersion != 20 {
		t.Errorf("the relist is of kind %d at %d", second.Kind, second.End.ResourceVersion)
	}
}

// TestGoesBackOnlyByList checks that a watch event of an earlier version than the
// held one is ignored, while a list of a restored cluster is applied.
func TestGoesBackOnlyByList(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("n", "a", 1, 50)}, ResourceVersion: "50"}}})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("n", "a", 1, 40)}, {Type: delta.Deleted, Object: thing("n", "a", 1, 41)}})
	if o, ok := ix.Get("n/a"); !ok || o.ResourceVersion != "50" || ix.Latest().ResourceVersion != 50 {
		t.Errorf("an old event took the object back to %v", o)
	}
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("n", "a", 1, 30)}, ResourceVersion: "35"}}})
	if o, _ := ix.Get("n/a"); o.ResourceVersion != "30" || ix.Latest().ResourceVersion != 35 {
		t.Errorf("the list of a restored cluster was not applied: %v at %d", o, ix.Latest().ResourceVersion)
	}
}

// TestMemoryIsFreed checks that superseded and deleted versions are garbage as soon
// as no view and no reader of the log needs them.
func TestMemoryIsFreed(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	o := thing("n", "a", 1, 1)
	first := weak.Make(o)
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{o}, ResourceVersion: "1"}}})
	o = nil
	v := ix.Pin()
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("n", "a", 1, 2)}})
	runtime.GC()
	if first.Value() == nil {
		t.Fatal("a pinned view lost its object")
	}
	v.Release()
	v = nil
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Bookmark, List: &delta.List[*meta]{ResourceVersion: "3"}}})
	runtime.GC()
	if first.Value() != nil {
		t.Error("a superseded version is still held")
	}
	second, _ := ix.Get("n/a")
	held := weak.Make(second)
	second = nil
	ix.Empty()
	runtime.GC()
	if held.Value() != nil {
		t.Error("an emptied store still holds an object")
	}
	runtime.KeepAlive(ix)
}

// TestReadersNeverWait hammers the store from one writer and several readers;
// the race detector and the readers' own checks are the test. Each write moves
// all objects on together, so a view in which they differ is torn.
func TestReadersNeverWait(t *testing.T) {
	const objects, rounds = 20, 300
	ix := indexer.New(indexer.Options[*meta]{})
	write := func(version int) {
		var deltas []delta.Delta[*meta]
		for i := range objects {
			d := delta.Delta[*meta]{Type: delta.Updated, Object: thing("n", strconv.Itoa(i), i, version)}
			deltas = append(deltas, d)
		}
		ix.Apply(deltas)
	}
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{ResourceVersion: "1"}}})
	write(2)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := 0
			for {
				v := ix.Pin()
				want, n := "", 0
				for _, o := range v.All() {
					if want == "" {
						want = o.ResourceVersion
					}
					if o.ResourceVersion != want {
						t.Errorf("one view has both %s and %s", want, o.ResourceVersion)
					}
					n++
				}
				if o, ok := v.Get("n/7"); !ok || o.ResourceVersion != want {
					t.Errorf("Get disagrees with All: %v, %s", o, want)
				}
				v.Release()
				if now, _ := strconv.Atoi(want); n != objects || now < last {
					t.Errorf("a view of %d objects at %s after %d", n, want, last)
				} else {
					last = now
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range rounds {
		write(3 + i)
	}
	close(done)
	wg.Wait()
	if s := ix.Stats(); s.Pinned > 4 {
		t.Errorf("%d views are still pinned", s.Pinned)
	}
}
