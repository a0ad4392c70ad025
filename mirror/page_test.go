package mirror_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/demo"
	"github.com/tidings-io/tidings/mirror"
)

func TestPagesAreOfOneState(t *testing.T) {
	for _, source := range []mirror.Source{mirror.Cache, mirror.Live} {
		t.Run(string(source), func(t *testing.T) {
			inBubble(t, demo.Options{}, mirror.Options{}, func(r *rig) {
				rnd := rand.New(rand.NewPCG(1, 2))
				for i := range 40 {
					r.set("default", fmt.Sprintf("cm-%02d", i), "1", fmt.Sprintf("third=%v", i%3 == 0))
					r.set("kube-public", fmt.Sprintf("cm-%02d", i), "1")
				}
				for name, q := range map[string]mirror.Query{
					"all":       {},
					"namespace": {Namespace: "default"},
					"labels":    {Labels: selector(t, "third=true")},
					"none":      {Labels: selector(t, "third=perhaps")},
					"fields":    {Fields: fieldSelector(t, "metadata.name!=cm-07")},
				} {
					q.Target, q.Source = r.query("cm").Target, source
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
						// An API server does not count what a selector leaves, and may
						// offer a next page that turns out to be empty.
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
	inBubble(t, demo.Options{}, mirror.Options{PageTTL: time.Minute, MaxPages: 3}, func(r *rig) {
		for i := range 10 {
			r.set("default", fmt.Sprint("a", i), "1", "x=y")
			r.set("kube-public", fmt.Sprint("a", i), "1", "x=y")
		}
		q := r.query("cm")
		q.Limit = 1
		first := func() string {
			t.Helper()
			_, meta := r.list(q)
			if meta.Continue == "" {
				t.Fatal("no next page")
			}
			return meta.Continue
		}
		token := first()
		q.Continue = token
		for name, change := range map[string]func(*mirror.Query){
			"namespace": func(q *mirror.Query) { q.Namespace = "default" },
			"labels":    func(q *mirror.Query) { q.Labels = selector(t, "x=y") },
			"fields":    func(q *mirror.Query) { q.Fields = fieldSelector(t, "metadata.name!=b") },
			"source":    func(q *mirror.Query) { q.Source = mirror.Live },
			"resource":  func(q *mirror.Query) { q.Target = r.query("pods").Target },
			"forged": func(q *mirror.Query) {
				raw, _ := base64.RawURLEncoding.DecodeString(q.Continue)
				q.Continue = base64.RawURLEncoding.EncodeToString(slices.Concat(raw[:16], []byte(`{"s":1,"a":"kube-public/a"}`)))
			},
		} {
			other := q
			change(&other)
			e := r.refuse(r.listErr(other), mirror.Expired)
			if t.Failed() {
				t.Fatal(name, e)
			}
		}
		q.Limit = 7 // the limit may change
		r.must(r.listErr(q))
		q.Limit = 1

		time.Sleep(50 * time.Second)
		r.must(r.listErr(q)) // a use prolongs it
		time.Sleep(50 * time.Second)
		r.must(r.listErr(q))
		time.Sleep(61 * time.Second)
		r.refuse(r.listErr(q), mirror.Expired)

		var tokens []string
		for i := range 4 {
			q.Continue = ""
			tokens = append(tokens, first(), first()) // of one state
			r.set("default", "a1", fmt.Sprint("changed ", i), "x=y")
			time.Sleep(time.Second)
		}
		for i, token := range tokens {
			q.Continue = token
			if err := r.listErr(q); i < 2 {
				r.refuse(err, mirror.Expired) // it was one too many
			} else {
				r.must(err)
			}
		}

		r.must(r.mirror.Set(r.ctx, map[string]*rest.Config{"test": rest.CopyConfig(r.config)}))
		q.Target = r.query("cm").Target
		r.refuse(r.listErr(q), mirror.Expired)
	})
}
