package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

var tokenReviews = authenticationv1.SchemeGroupVersion.WithResource("tokenreviews")

// bubble is a server in a synctest bubble, called without connections.
type bubble struct {
	*testing.T
	cluster *fakeapi.Cluster
	server  *server.Server
	sent    int
}

func inBubble(t *testing.T, o server.Options, test func(*bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, cluster: fakeapi.New(fakeapi.Options{
			Allow: func(fakeapi.User, fakeapi.Access) bool { return true },
			Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}, "bob-token": {Name: "bob"}},
		})}
		config, stop := fakeapi.InProcess(b.cluster)
		defer stop()
		config.BearerToken = "mirror-token"
		logger := slog.New(slog.DiscardHandler)
		m, err := mirror.New(mirror.Options{Logger: logger})
		b.must(err)
		defer func() { b.must(m.Close(context.WithoutCancel(t.Context()))) }()
		b.must(m.Set(t.Context(), map[string]*rest.Config{"test": config}))
		o.Logger = logger
		o.Gate, err = access.NewGate(access.Options{Logger: logger})
		b.must(err)
		defer o.Gate.Close()
		b.server, err = server.New(m, o)
		b.must(err)
		defer b.server.Close()
		test(b)
	})
}

func (b *bubble) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// ask returns the status of a response, and for a 429 its Retry-After.
func (b *bubble) ask(from, token, path string, headers ...string) string {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
	r.RemoteAddr = from
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	b.server.Handler().ServeHTTP(w, r)
	if w.Code == http.StatusTooManyRequests {
		return fmt.Sprint(w.Code, " after ", w.Header().Get("Retry-After"))
	}
	return fmt.Sprint(w.Code)
}

// unverified sends concurrent requests, each with an invented token.
func (b *bubble) unverified(n int, from string) <-chan string {
	answers := make(chan string, n)
	for range n {
		b.sent++
		token := fmt.Sprint("invented-", b.sent)
		go func() { answers <- b.ask(from, token, "/cm") }()
	}
	synctest.Wait()
	return answers
}

func (b *bubble) reviews() int { return b.cluster.Count("create", tokenReviews) }

func (b *bubble) drain(answers <-chan string) map[string]int {
	synctest.Wait()
	out := map[string]int{}
	for len(answers) > 0 {
		out[<-answers]++
	}
	return out
}

func (b *bubble) want(what string, got, want any) {
	b.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A flood of invented tokens takes no seat from a verified caller: not when its
// requests come, and not when its token is reviewed again.
func TestUnverifiedRequestsTakeNoSeatsOfCallers(t *testing.T) {
	const here, there, elsewhere = "127.0.0.1:1", "[2001:db8::1]:1", "192.0.2.1:1"
	inBubble(t, server.Options{MaxRequests: 1, MaxUnverified: 4}, func(b *bubble) {
		b.want("alice", b.ask(here, "alice-token", "/cm"), "200")
		release := make(chan struct{})
		defer b.cluster.Inject(fakeapi.Times(4, fakeapi.On("create", tokenReviews, &fakeapi.Fault{Until: release})))()
		b.cluster.ResetCounts()
		flood := b.unverified(100, here)
		b.want("tokens asked about, from one address", b.reviews(), 2)
		other := b.unverified(1, there)
		b.want("and from another", b.reviews(), 3)
		rest := b.unverified(10, "[2001:db8::2]:1") // of the same network
		b.want("and from its network", b.reviews(), 4)
		third := b.unverified(1, elsewhere)
		b.want("and from a third, for which there is no seat", b.reviews(), 4)
		for range 20 {
			b.want("alice", b.ask(here, "alice-token", "/cm"), "200")
			b.want("nobody", b.ask(here, "", "/cm"), "401")
			b.want("somebody who wants nothing but the index", b.ask(here, "", "/"), "200")
		}
		b.want("more than may wait", b.drain(b.unverified(100, here)), map[string]int{"429 after 2": 70}) // where 98 do, and 128 may
		time.Sleep(5 * time.Second)
		b.want("the flood after its time", b.drain(flood), map[string]int{"429 after 2": 98})
		b.want("its network", b.drain(rest), map[string]int{"429 after 2": 9})
		b.want("the third", b.drain(third), map[string]int{"429 after 2": 1})
		time.Sleep(4 * time.Second)
		close(release)
		b.want("those who were asked about", []any{b.drain(flood), b.drain(other), b.drain(rest)}, []any{map[string]int{"401": 2}, map[string]int{"401": 1}, map[string]int{"401": 1}})
		time.Sleep(2 * time.Second)
		b.want("alice, asked about again", b.ask(here, "alice-token", "/cm"), "200")
	})
}

// Addresses get seats in turn, however many requests of one wait.
func TestAddressesTakeTurns(t *testing.T) {
	inBubble(t, server.Options{MaxUnverified: 1, MaxUnverifiedPerAddress: 1}, func(b *bubble) {
		defer b.cluster.Inject(fakeapi.On("create", tokenReviews, &fakeapi.Fault{Delay: time.Second}))()
		flood := b.unverified(50, "192.0.2.1:1")
		begun := time.Now()
		b.want("bob", b.ask("192.0.2.2:1", "bob-token", "/cm"), "200")
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("bob has waited %s", took)
		}
		time.Sleep(10 * time.Second)
		if got := b.drain(flood); got["401"] < 3 || got["401"]+got["429 after 2"] != 50 {
			t.Errorf("the others: %v", got)
		}
	})
}

// While the API server is unavailable, callers with rights go on reading what need not
// be fresh; others get a 503.
func TestReadsWhileUnavailable(t *testing.T) {
	inBubble(t, server.Options{}, func(b *bubble) {
		const from = "192.0.2.1:1"
		b.want("alice", b.ask(from, "alice-token", "/cm"), "200")
		b.want("alice, by the Kubernetes API", b.ask(from, "alice-token", "/api/v1/configmaps?resourceVersion=0"), "200")
		b.cluster.SetDown(true)
		for range 4 {
			time.Sleep(time.Minute)
			b.want("alice", b.ask(from, "alice-token", "/cm"), "200")
			b.want("alice, by the Kubernetes API", b.ask(from, "alice-token", "/api/v1/configmaps?resourceVersion=0"), "200")
			b.want("bob", b.ask(from, "bob-token", "/cm"), "503")
		}
	})
}
