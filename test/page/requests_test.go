package page_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// requestLog has the requests that reached an API server, without those that a mirror makes
// for itself whether or not somebody looks: watches, and the checks of the connection.
type requestLog struct {
	mu   sync.Mutex
	seen []string
}

func record(c *fakeapi.Cluster) *requestLog {
	l := &requestLog{}
	c.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
		if req.Verb == "watch" || req.HTTP.URL.Path == "/readyz" {
			return nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen = append(l.seen, req.Verb+" "+req.HTTP.URL.RequestURI())
		return nil
	})
	return l
}

// take returns the requests since the last call.
func (l *requestLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.seen = nil }()
	return l.seen
}

// discovery are the requests for what a cluster serves.
var discovery = regexp.MustCompile(`^get (/apis?|/api/v1|/apis/[^/]+/[^/]+)(\?.*)?$`)

// lookAround shows each view of the demo.
func lookAround(p *tab) {
	p.Helper()
	for _, view := range []struct {
		fragment, selector, text string
		bar                      bool // the time bar asks for another selection
	}{
		{"pods", ".fresh.good", "live", false},
		{"deploy?namespace=shop", "tbody", "frontend", true},
		{"pods?filter=frontend&sort=Restarts&descending", "tbody", "frontend", false},
		{"pods?cluster=*&columns=.spec.nodeName", "thead", "Cluster", false},
		{"nodes", "tbody", "Ready", true},
		{"replicasets?namespace=shop", "tbody", "cart", true},
		{"deploy?object=shop/cart", ".object .facts", "Ready", true},
		{"deploy?object=shop/cart&view=yaml", ".object pre", "replicas", false},
		{"deploy?object=shop/cart&view=timeline", ".object .lanes", "ReplicaSet", false},
		{"deploy?object=shop/cart&view=compare&with=shop/catalog", ".object", "spec.selector", false},
		{"deploy?namespace=shop&around=10", ".around", "in the last", false},
		{"pipeline", ".pipeline", "deployments", false},
		{"pods", ".fresh.good", "live", true},
	} {
		evaluate[string](p, "performance.clearResourceTimings(), location.hash = '#/"+view.fragment+"'")
		p.awaitText(view.selector, view.text)
		if view.bar { // it asks 300 ms later: without this, only if the view is shown so long
			p.await("the time bar has been counted", "performance.getEntriesByType('resource').some((e) => e.name.includes('counts='))")
		}
	}
	p.press(":", "deplo")
	p.awaitText(".prompt", "deployments")
	p.press("y /sho")
	p.awaitText(".prompt", "/shop") // the namespaces are known, too
	p.press(escape)
}

// Once its resources are mirrored, looking around puts no request to the API server. With
// authentication it takes the reviews of the caller, each once while its answer is valid,
// and reads of the past in a namespace ask whether it is still the one that it was.
func TestLookingAroundPutsNoRequests(t *testing.T) {
	visitTwice := func(t *testing.T, s *served, l *requestLog, enter func(*tab), besides string) {
		begun := time.Now()
		p := visit(t, s, "#/pods", "400", "401", "410")
		enter(p)
		lookAround(p)
		l.take()
		lookAround(p)
		slow := time.Since(begun) > 25*time.Second // the completions are asked for again after half a minute
		again := slices.DeleteFunc(l.take(), func(r string) bool { return r == besides || slow && discovery.MatchString(r) })
		if len(again) > 0 {
			t.Errorf("looking around put %d requests to the API server:\n%s", len(again), strings.Join(again, "\n"))
		}
	}
	t.Run("without authentication", func(t *testing.T) {
		config, c := runDemo(t, demo.Workload{Seed: 1}, fakeapi.Options{})
		l := record(c.Cluster)
		visitTwice(t, serve(t, config, withHistory(t)), l, func(*tab) {}, "")
	})
	t.Run("with authentication", func(t *testing.T) {
		config, c := runDemo(t, demo.Workload{Seed: 1}, fakeapi.Options{
			Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "jane-token": {Name: "jane"}},
			Allow: func(fakeapi.User, fakeapi.Access) bool { return true },
		})
		config = rest.CopyConfig(config)
		config.BearerToken = "mirror-token"
		gate, err := access.NewGate(access.Options{AllowTTL: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(gate.Close)
		l := record(c.Cluster)
		options := withHistory(t)
		options.Gate = gate
		visitTwice(t, serve(t, config, options), l, func(p *tab) {
			p.awaitText(".token", "Who are you?")
			p.press("jane-token", enter)
		}, "get /api/v1/namespaces/shop")
	})
}
