package read_test

import (
	"context"
	"testing"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// FuzzContinue lists with arbitrary continue tokens.
func FuzzContinue(f *testing.F) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	f.Cleanup(stop)
	r := newRig(f, c, config, mirror.Options{})
	f.Cleanup(r.close)
	r.set("default", "a", "1")
	r.set("default", "b", "1")
	q := r.query("cm")
	q.Limit = 1
	_, meta := r.list(q)
	f.Add(meta.Continue)
	f.Add(meta.Continue[1:])
	f.Add("")
	f.Add("eyJzIjoxfQ")
	f.Fuzz(func(t *testing.T, token string) {
		q := q
		q.Continue = token
		err := r.listErr(q)
		switch mirror.ReasonOf(err) {
		case mirror.Expired, mirror.Invalid:
		default:
			if err != nil || token != "" && token != meta.Continue {
				t.Errorf("%q: %v", token, err)
			}
		}
	})
}

// FuzzSince watches from arbitrary resume points. The watch begins, or fails with an
// error.
func FuzzSince(f *testing.F) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	f.Cleanup(stop)
	r := newRig(f, c, config, mirror.Options{})
	f.Cleanup(r.close)
	version := r.set("default", "a", "1")
	q := r.query("cm")
	r.must(r.listErr(q))
	for _, seed := range []string{"", "0", "1", version, version + ".1", "0.1", "1.2.3", "x", "-1", "1e3", " 1", "1 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, since string) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if len(since) > 1 && since[0] > version[0] || len(since) > len(version) {
			ctx, cancel = context.WithCancel(ctx) // do not wait for the mirror to come to it
			cancel()
		}
		events, err := r.events(ctx, q, since)
		if err != nil {
			if mirror.ReasonOf(err) != mirror.Invalid && ctx.Err() == nil {
				t.Errorf("%q: %v", since, err)
			}
			return
		}
		if since == version || since == version+".1" {
			return // nothing to tell
		}
		for e, err := range events {
			if err != nil {
				t.Errorf("%q: %v", since, err)
			}
			if e.Type == read.Bookmark {
				continue
			}
			if want := read.Reset; since != "" && e.Type != want {
				t.Errorf("%q: the watch began with %s", since, e.Type)
			}
			break
		}
	})
}
