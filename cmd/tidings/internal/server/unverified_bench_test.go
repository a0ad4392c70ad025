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

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// BenchmarkKnownCaller measures how long a verified caller waits for responses, alone
// and beside 1,000 concurrent requests with invented tokens, with a cluster that takes
// half a second for a TokenReview. All come from one address. Run it for longer than
// AllowTTL, 10 seconds:
//
//	go test -run '^$' -bench KnownCaller -benchtime 30s ./cmd/tidings/internal/server
func BenchmarkKnownCaller(b *testing.B) {
	for _, unverified := range []int{0, 1000} {
		b.Run(fmt.Sprintf("unverified=%d", unverified), func(b *testing.B) {
			gate, err := access.NewGate(access.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(gate.Close)
			c := fakeapi.New(fakeapi.Options{
				Allow: func(fakeapi.User, fakeapi.Access) bool { return true },
				Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}},
			})
			c.Inject(fakeapi.On("create", tokenReviews, &fakeapi.Fault{Delay: 500 * time.Millisecond}))
			config, stop := fakeapi.InProcess(c)
			b.Cleanup(stop)
			config.BearerToken = "mirror-token"
			r := serve(b, c, config, options{server: server.Options{Gate: gate}})
			r.client.Transport.(*http.Transport).MaxIdleConnsPerHost = unverified + 1
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
			for i := range unverified {
				flood.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						if ask(ctx, fmt.Sprintf("invented-%d-%d", i, n)) == http.StatusTooManyRequests {
							refused.Add(1)
						}
					}
				})
			}
			if unverified > 0 {
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
			b.ReportMetric(float64(refused.Load()), "429s-of-unverified")
		})
	}
}
