package read_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestPagesAreOfOneState(t *testing.T) {
	for _, source := range []read.Source{read.Cache, read.Live} {
		t.Run(string(source), func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
				rnd := rand.New(rand.NewPCG(1, 2))
				for i := range 40 {
					r.set("default", fmt.Sprintf("cm-%02d", i), "1", fmt.Sprintf("third=%v", i%3 == 0))
					r.set("kube-public", fmt.Sprintf("cm-%02d", i), "1")
				}
				for name, q := range map[string]read.Params{
					"all":       {},
					"namespace": {Namespace: "default"},
					"labels":    {Labels: selector(t, "third=true")},
					"none":      {Labels: selector(t, "third=perhaps")},
					"fields":    {Fields: fieldSelector(t, "metadata.name!=cm-07")},
				} {
					of := r.query("cm")
					q.Cluster, q.Resource, q.Source = of.Cluster, of.Resource, source
					want, whole := r.list(q)
					q.Limit = int64(1 + rnd.IntN(30))
					if name == "namespace" {
						q.Limit = 40 // exactly one page
					}
					var got []string
					for {
						page, meta := r.list(q)
						got = append(got, page...)
						if meta.ResourceVersion != whole.ResourceVersion {
							t.Errorf("%s: a page of %s, the list is of %s", name, meta.ResourceVersion, whole.ResourceVersion)
						}
						selective := q.Labels != nil || q.Fields != nil
						// An API server does not count the selected objects, and may
						// offer an empty last page.
						unknown := selective && meta.Remaining == -1 && meta.Continue != ""
						if left := int64(len(want) - len(got)); meta.Remaining != left && !unknown {
							t.Errorf("%s: %d are said to remain of %d", name, meta.Remaining, left)
						}
						if meta.Continue == "" {
							break
						}
						again := q
						again.Continue = meta.Continue
						once, _ := r.list(again)
						twice, _ := r.list(again)
						same(t, "a page asked for twice", twice, once)
						q.Continue = meta.Continue
						for range 5 { // changes that pages must not show
							i := rnd.IntN(50)
							if _, err := r.server.Get(configMaps, "default", fmt.Sprintf("cm-%02d", i)); err == nil && rnd.IntN(2) == 0 {
								r.delete("default", fmt.Sprintf("cm-%02d", i))
							} else {
								r.set("default", fmt.Sprintf("cm-%02d", i), fmt.Sprint(rnd.Int()), "third=true")
							}
						}
						time.Sleep(time.Second)
					}
					same(t, name, got, want)
				}
			})
		})
	}
}

func TestTokensOfOtherQueriesAndStates(t *testing.T) {
	opts := read.Options{PageTTL: time.Minute, MaxPages: 3, MaxPagesPerCaller: 3}
	inBubbleOf(t, fakeapi.Options{}, mirror.Options{Retain: 1}, opts, func(r *rig) {
		for i := range 10 {
			r.set("default", fmt.Sprint("a", i), "1", "x=y")
			r.set("kube-public", fmt.Sprint("a", i), "1", "x=y")
		}
		q := r.query("cm")
		q.Limit = 1
		first := func() string {
			t.Helper()
			q := q
			q.Continue = ""
			_, meta := r.list(q)
			if meta.Continue == "" {
				t.Fatal("no next page")
			}
			return meta.Continue
		}
		q.Continue = first()
		for name, change := range map[string]func(*read.Params){
			"namespace": func(q *read.Params) { q.Namespace = "default" },
			"labels":    func(q *read.Params) { q.Labels = selector(t, "x=y") },
			"fields":    func(q *read.Params) { q.Fields = fieldSelector(t, "metadata.name!=b") },
			"resource":  func(q *read.Params) { q.Resource = r.query("pods").Resource },
		} {
			other := q
			change(&other)
			if err := r.listErr(other); mirror.ReasonOf(err) != mirror.Expired {
				t.Errorf("%s: %v", name, err)
			}
		}
		q.Limit = 7 // the limit may change
		r.must(r.listErr(q))
		q.Limit = 1

		change := func() {
			for i := range 3 { // which is more than is retained
				r.set("default", "a1", fmt.Sprint("changed ", i, time.Now()), "x=y")
				synctest.Wait()
			}
			time.Sleep(time.Second)
		}
		change()
		time.Sleep(50 * time.Second)
		r.must(r.listErr(q)) // a use prolongs it
		time.Sleep(50 * time.Second)
		r.must(r.listErr(q))
		time.Sleep(61 * time.Second)
		r.refuse(r.listErr(q), mirror.Expired)

		var tokens []string
		for range 4 {
			tokens = append(tokens, first(), first()) // of one state
			change()
		}
		for i, token := range tokens {
			q.Continue = token
			if err := r.listErr(q); i < 2 {
				r.refuse(err, mirror.Expired) // it was one too many
			} else {
				r.must(err)
			}
		}
	})
}

// The pages of one caller do not evict those of the others.
func TestPagesOfOneCallerLeaveRoomForOthers(t *testing.T) {
	opts := read.Options{MaxPages: 10, MaxPagesPerCaller: 3}
	inBubbleOf(t, fakeapi.Options{}, mirror.Options{Retain: 1}, opts, func(r *rig) {
		r.set("default", "a", "1")
		r.set("default", "b", "1")
		page := func(caller, token string) (string, error) {
			ask := r.query("cm")
			ask.Limit, ask.Continue = 1, token
			q, err := r.bind(ask, read.List)
			r.must(err)
			meta, err := r.reader.List(read.WithCaller(r.ctx, caller), q, func(*read.Object) error { return nil })
			return meta.Continue, err
		}
		token, err := page("admin", "")
		r.must(err)
		_, err = page("flood", "") // the same state, for another caller
		r.must(err)
		for i := range 100 {
			for range 2 {
				r.set("default", "a", fmt.Sprint("changed ", i), fmt.Sprint("x=", i))
			}
			synctest.Wait()
			_, err := page(fmt.Sprint("flood", map[bool]string{true: "", false: fmt.Sprint(i % 5)}[i < 50]), "")
			r.must(err)
		}
		if _, err := page("admin", token); err != nil {
			t.Errorf("the pages of others have pushed out the administrator's: %v", err)
		}
	})
}
