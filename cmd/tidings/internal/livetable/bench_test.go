package livetable_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// BenchmarkWindows measures what a user of a table of 100,000 pods waits for: its first
// rows, all of them, and the first frame of another order or filter.
func BenchmarkWindows(b *testing.B) {
	const pods = 100_000
	c := fakeapi.New(fakeapi.Options{})
	for pod := range samplepods.All(pods, 1) {
		pod.ResourceVersion = ""
		if _, err := c.Put(pod); err != nil {
			b.Fatal(err)
		}
	}
	config, stop := fakeapi.InProcess(c)
	defer stop()
	m, err := mirror.New(mirror.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{TB: b, ctx: b.Context(), cluster: c, mirror: m}
	r.must(m.Set(r.ctx, map[string]*rest.Config{"test": config}))
	defer func() { r.must(m.Close(context.Background())) }()
	r.tables = livetable.New(read.New(read.Options{}), livetable.Options{Linger: time.Hour})
	q := r.query(nil)
	of := q.Resource()
	_, err = q.Params().Cluster.Ready(r.ctx, of, "")
	r.must(err)
	first := func(b *testing.B, p livetable.Params, until func(synced bool) bool) {
		p.Count = 120
		w, err := r.tryOpen(r.ctx, q, p)
		r.must(err)
		defer w.Close()
		for {
			content, err := w.Next(r.ctx)
			r.must(err)
			var f struct{ Synced bool }
			r.must(json.Unmarshal(content, &f))
			if until(f.Synced) {
				return
			}
		}
	}
	some, all := func(bool) bool { return true }, func(synced bool) bool { return synced }
	for name, until := range map[string]func(bool) bool{"first rows": some, "all rows": all} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r.tables.Close()
				r.tables = livetable.New(read.New(read.Options{}), livetable.Options{Linger: time.Hour})
				first(b, livetable.Params{}, until)
			}
		})
	}
	first(b, livetable.Params{}, all)
	for name, p := range map[string]livetable.Params{
		"sort by name": {Sort: "Name"}, "sort by age": {Sort: "Age"}, "sort by status": {Sort: "Status", Descending: true},
		"filter": {Filter: "run"}, "filter none": {Filter: "nothing-has-this"}, "filter and sort": {Filter: "1 !2", Sort: "Restarts"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer() // nothing is kept of the same order, only that of the keys
				for _, other := range []string{"Ready", "Restarts", "Namespace", ""} {
					first(b, livetable.Params{Sort: other}, some)
				}
				b.StartTimer()
				first(b, p, some)
			}
		})
	}
	r.tables.Close()
}
