package matrix

import (
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
	"github.com/tidings-io/tidings/informer"
)

const (
	listing  = informer.Listing
	watching = informer.Watching
)

var rows = slices.Concat(wireRows, answerRows, streamRows, clusterRows)

// rule puts an action on requests for the row's resource.
func rule(l *line, r *faultproxy.Rule) injected {
	r.Resource = l.kind.plural
	return injected{heal: l.proxy.Add(r), hit: func() bool { return r.Hits() > 0 }}
}

// both puts an action on lists and watches and breaks the watches that are open,
// which would not notice otherwise.
func both(action faultproxy.Action) func(*line) injected {
	return func(l *line) injected {
		i := rule(l, &faultproxy.Rule{Action: action})
		l.cutWatches()
		return i
	}
}

// next puts an action on the next watch, once, and breaks those that are open so
// that there is one.
func next(verb string, action faultproxy.Action) func(*line) injected {
	return func(l *line) injected {
		l.settle()
		i := rule(l, &faultproxy.Rule{Verb: verb, Times: 1, Action: action})
		l.cutWatches()
		return i
	}
}

func (l *line) cutWatches() {
	l.proxy.CutOpen(func(r faultproxy.Request) bool { return r.Verb == "watch" && r.Resource == l.kind.plural })
}

// plain puts an action on lists, and refuses WatchList streams so that there are
// some. times is how often; 0: until the fault is healed.
func plain(times int, action faultproxy.Action) func(*line) injected {
	return func(l *line) injected {
		refuse := l.proxy.Add(&faultproxy.Rule{Verb: faultproxy.WatchList, Resource: l.kind.plural, Action: faultproxy.Status(noWatchList)})
		i := rule(l, &faultproxy.Rule{Verb: "list", Times: times, Action: action, Match: func(r *http.Request) bool {
			return r.URL.Query().Get("limit") != "1" // that only asks which version there is
		}})
		heal := i.heal
		i.heal = func() {
			refuse()
			heal()
		}
		return i
	}
}

// settle waits until the last list is so long ago that one which expires is
// followed by another at once: sooner, there is a wait first.
func (l *line) settle() {
	l.Helper()
	eventually(l, time.Minute, "the list is a while ago", func() bool { return time.Since(l.began) > 6*time.Second })
}

// relist has the informers list again, under the fault.
func relist(fault func(*line) injected) func(*line) injected {
	return func(l *line) injected {
		l.settle()
		i := fault(l)
		expire := &faultproxy.Rule{Verb: "watch", NotVerb: faultproxy.WatchList, Resource: l.kind.plural, Times: 1, Action: faultproxy.Status(expired)}
		remove, heal := l.proxy.Add(expire), i.heal
		i.heal = func() {
			remove()
			heal()
		}
		l.cutWatches()
		return i
	}
}

var (
	resource    = schema.GroupResource{Resource: "configmaps"}
	expired     = apierrors.NewResourceExpired("too old resource version: 1 (2)")
	noWatchList = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "watch", resource, "", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled", 0, false)
	unavailable = apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	internal    = apierrors.NewInternalError(errEtcd)
	tooMany     = apierrors.NewTooManyRequests("too many requests, please try again later", 3)
	conflict    = apierrors.NewConflict(resource, "", errEtcd)
	forbidden   = apierrors.NewForbidden(resource, "", errRole)
	unknown     = apierrors.NewUnauthorized("Unauthorized")
	loadPage    = "<html><head><title>Welcome</title></head><body>You have reached the load balancer.</body></html>"
)

type text string

func (t text) Error() string { return string(t) }

const (
	errEtcd = text("etcdserver: leader changed")
	errRole = text("RBAC: role not found")
)

// wireRows break connections.
var wireRows = []*row{
	{Fault: "connection refused", While: listing, Errors: 2, Error: "connection refused", Inject: refuse},
	{Fault: "connection refused", While: watching, Errors: 2, Error: "connection refused", Inject: refuse},
	{Fault: "connection reset", While: listing, Errors: 2, Error: "connection reset by peer|EOF|broken pipe", Shows: "connection reset by peer` or `EOF", Inject: func(l *line) injected {
		l.must(l.wire.ResetNew())
		return injected{heal: func() { l.must(l.wire.Heal()) }}
	}},
	{Fault: "connection reset", While: watching, Error: "connection reset by peer", Inject: func(l *line) injected {
		l.wire.Reset()
		return injected{}
	}},
	{Fault: "connection silent", While: listing, Error: "TLS handshake timeout|connection lost", Inject: stall},
	{Fault: "connection silent", While: watching, Error: "connection lost", Inject: stall},
	{Fault: "connection half open", While: watching, Error: "connection lost", Inject: func(l *line) injected {
		l.must(l.wire.HalfOpen())
		return injected{}
	}},
	{Fault: "slow drip, 20 kB/s", While: listing, Inject: drip},
	{Fault: "slow drip, 20 kB/s", While: watching, Inject: drip},
	{Fault: "packets of 100 bytes", While: listing, Inject: slice},
	{Fault: "packets of 100 bytes", While: watching, Inject: slice},
}

func refuse(l *line) injected {
	l.wire.Refuse()
	l.wire.Reset()
	return injected{heal: func() { l.must(l.wire.Accept()) }}
}

func stall(l *line) injected {
	l.must(l.wire.Stall())
	return injected{heal: func() { l.must(l.wire.Heal()) }}
}

func drip(l *line) injected {
	l.must(l.wire.Drip(20))
	return injected{hit: l.moved(5)} // it does not end
}

func slice(l *line) injected {
	l.must(l.wire.Slice(100, 0))
	return injected{hit: l.moved(20)} // it does not end
}

// moved says that something has come through: that the fault does not hold up
// everything.
func (l *line) moved(n int) func() bool {
	events := func() (sum int) {
		for _, p := range l.replays {
			p.mu.Lock()
			sum += p.events
			p.mu.Unlock()
		}
		return sum
	}
	from := -1
	return func() bool {
		if from < 0 {
			from = events()
		}
		return events() >= from+n
	}
}

// answerRows answer requests otherwise than the API server would.
var answerRows = []*row{
	{Fault: "429 with Retry-After: 3", While: listing, Errors: 1, Error: "too many requests", Inject: both(faultproxy.Status(tooMany))},
	{Fault: "429 with Retry-After: 3", While: watching, Errors: 1, Error: "too many requests", Inject: both(faultproxy.Status(tooMany))},
	{Fault: "503 with Retry-After: 3, of a load balancer", While: listing, Errors: 1, Error: "currently unable to handle the request", Inject: both(faultproxy.RetryAfter(503, "3"))},
	{Fault: "503 with Retry-After: 3, of a load balancer", While: watching, Errors: 1, Error: "currently unable to handle the request", Inject: both(faultproxy.RetryAfter(503, "3"))},
	{Fault: "503 with Retry-After: a date, of a clock that is an hour ahead", While: watching, Errors: 2, Error: "currently unable to handle the request", Inject: both(func(x *faultproxy.Exchange) {
		faultproxy.RetryAfter(503, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))(x)
	})},
	{Fault: "503", While: listing, Errors: 2, Error: "unable to handle the request", Inject: both(faultproxy.Status(unavailable))},
	{Fault: "503", While: watching, Errors: 2, Error: "unable to handle the request", Inject: both(faultproxy.Status(unavailable))},
	// A server also asks /readyz once a second while the connection is lost.
	{Fault: "503 for ten seconds", While: watching, Errors: 2, Error: "unable to handle the request", Most: 24, Inject: func(l *line) injected {
		i, begun := both(faultproxy.Status(unavailable))(l), time.Now()
		i.hit = func() bool { return time.Since(begun) > 10*time.Second }
		return i
	}},
	{Fault: "500", While: listing, Errors: 2, Error: "etcdserver: leader changed", Inject: both(faultproxy.Status(internal))},
	{Fault: "500", While: watching, Errors: 2, Error: "etcdserver: leader changed", Inject: both(faultproxy.Status(internal))},
	{Fault: "409", While: listing, Errors: 2, Error: "etcdserver: leader changed", Inject: both(faultproxy.Status(conflict))},
	{Fault: "409", While: watching, Errors: 2, Error: "etcdserver: leader changed", Inject: both(faultproxy.Status(conflict))},
	{Fault: "401", While: listing, Waits: informer.Refused, Reads: "502 Unauthorized", Error: "Unauthorized; check the credentials of the kubeconfig", Inject: both(faultproxy.Status(unknown))},
	{Fault: "401", While: watching, Errors: 2, Error: "Unauthorized", Inject: both(faultproxy.Status(unknown))},
	{Fault: "403", While: listing, Waits: informer.Refused, Reads: "403 Forbidden", Error: `is forbidden: RBAC: role not found; grant the verbs list and watch`, Inject: both(faultproxy.Status(forbidden))},
	{Fault: "403", While: watching, Errors: 2, Error: "is forbidden: RBAC: role not found", Inject: both(faultproxy.Status(forbidden))},
	{Fault: "410 at list", While: listing, Errors: 2, Error: "too old resource version", Inject: plain(0, faultproxy.Status(expired))},
	{Fault: "410 at list", While: watching, Errors: 2, Error: "too old resource version", Inject: relist(plain(0, faultproxy.Status(expired)))},
	{Fault: "410 between two pages", While: listing, Inject: func(l *line) injected {
		if l.name == "server" {
			return injected{} // all is on one page
		}
		refuse := l.proxy.Add(&faultproxy.Rule{Verb: faultproxy.WatchList, Resource: l.kind.plural, Action: faultproxy.Status(noWatchList)})
		i := rule(l, &faultproxy.Rule{Verb: "list", Times: 1, Action: faultproxy.Status(expired),
			Match: func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }})
		heal := i.heal
		i.heal = func() { refuse(); heal() }
		return i
	}},
	{Fault: "410 at watch", While: watching, Error: "too old resource version", Inject: next("watch", faultproxy.Status(expired))},
	{Fault: "WatchList refused", While: listing, Inject: func(l *line) injected {
		if l.name == "server" { // its informers list in pages
			return injected{none: true}
		}
		return rule(l, &faultproxy.Rule{Verb: faultproxy.WatchList, Action: faultproxy.Status(noWatchList)})
	}},
	{Fault: "list cut in the middle", While: listing, Error: "unexpected EOF|stream error|INTERNAL_ERROR", Inject: plain(1, faultproxy.Cut(900))},
	{Fault: "list cut in the middle", While: watching, Error: "unexpected EOF|stream error|INTERNAL_ERROR", Inject: relist(plain(1, faultproxy.Cut(900)))},
	{Fault: "list that ends too soon, in good order", While: listing, Error: "unexpected EOF", Inject: plain(1, faultproxy.Truncate(900))},
	{Fault: "list that ends too soon, in good order", While: watching, Error: "unexpected EOF", Inject: relist(plain(1, faultproxy.Truncate(900)))},
	{Fault: "list with spoilt gzip", While: listing, Error: "flate: corrupt input", Inject: plain(1, faultproxy.CorruptGzip())},
	{Fault: "list with spoilt gzip", While: watching, Error: "flate: corrupt input", Inject: relist(plain(1, faultproxy.CorruptGzip()))},
	{Fault: "200 and a page of HTML", While: listing, Errors: 2, Error: `content type "text/html", neither Kubernetes JSON nor protobuf: is it an API server\?`, Inject: both(faultproxy.Answer(200, "text/html", loadPage))},
	{Fault: "200 and a page of HTML", While: watching, Errors: 2, Error: `content type "text/html", neither Kubernetes JSON nor protobuf: is it an API server\?`, Inject: both(faultproxy.Answer(200, "text/html", loadPage))},
	{Fault: "200 and garbage", While: listing, Errors: 2, Error: "an event of a watch was expected", Inject: both(faultproxy.Answer(200, "application/json", "\x00\xff}{garbage"))},
	{Fault: "200 and garbage", While: watching, Errors: 2, Error: "an event of a watch was expected", Inject: both(faultproxy.Answer(200, "application/json", "\x00\xff}{garbage"))},
	{Fault: "200 and nothing", While: listing, Errors: 2, Error: "EOF|ended", Inject: both(faultproxy.Answer(200, "application/json", ""))},
	{Fault: "200 and nothing", While: watching, Errors: 2, Error: "ended the watch at once, without an event", Inject: both(faultproxy.Answer(200, "application/json", ""))},
	{Fault: "502 that repeats the request's credentials", While: watching, Errors: 2, Error: "upstream sent no answer", Inject: both(func(x *faultproxy.Exchange) {
		faultproxy.Answer(502, "text/plain", "upstream sent no answer to\nGET "+x.HTTP.URL.Path+"\nAuthorization: "+x.HTTP.Header.Get("Authorization")+"\n")(x)
	})},
}
