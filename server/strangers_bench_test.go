package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/demo"
	"github.com/tidings-io/tidings/server"
)

// BenchmarkKnownCaller tells how long a known caller waits for answers, alone
// and beside 1,000 requests at a time with invented tokens, of a cluster that
// takes half a second for a TokenReview. All come from one address. To be run
// for longer than an answer is believed, 10 seconds:
//
//	go test -run '^$' -bench KnownCaller -benchtime 30s ./server
func BenchmarkKnownCaller(b *testing.B) {
	for _, strangers := range []int{0, 1000} {
		b.Run(fmt.Sprintf("strangers=%d", strangers), func(b *testing.B) {
			gate, err := access.NewGate(access.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(gate.Close)
			c := demo.New(demo.Options{
				Allow: func(demo.User, demo.Access) bool { return true },
				Users: map[string]demo.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}},
			})
			c.Inject(demo.On("create", tokenReviews, &demo.Fault{Delay: 500 * time.Millisecond}))
			config, stop := demo.InProcess(c)
			b.Cleanup(stop)
			config.BearerToken = "mirror-token"
			r := serve(b, c, config, options{server: server.Options{Gate: gate}})
			r.client.Transport.(*http.Transport).MaxIdleConnsPerHost = strangers + 1
			ask := func(ctx context.Context, token string) int {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/cm", nil)
				r.must(err)
				req.Header.Set("Authorization", "Bearer "+token)
				resp, err := r.client.Do(req)
				if err != nil {
					return 0
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.StatusCode
			}
			if code := ask(b.Context(), "alice-token"); code != http.StatusOK {
				b.Fatal(code)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var flood sync.WaitGroup
			defer flood.Wait()
			defer cancel()
			var refused atomic.Int64
			for i := range strangers {
				flood.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						if ask(ctx, fmt.Sprintf("invented-%d-%d", i, n)) == http.StatusTooManyRequests {
							refused.Add(1)
						}
					}
				})
			}
			if strangers > 0 {
				eventually(b, "the flood has come", func() bool { return refused.Load() > 0 })
			}
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				if code := ask(ctx, "alice-token"); code != http.StatusOK {
					b.Fatalf("the known caller is answered %d", code)
				}
				took = append(took, time.Since(begun))
				time.Sleep(time.Millisecond)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*50/100].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(refused.Load()), "429s-of-strangers")
		})
	}
}
