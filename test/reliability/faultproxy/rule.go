package faultproxy

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// WatchList is the verb of a watch with initial events (sendInitialEvents, KEP-3157).
// A rule for the verb watch matches these as well.
const WatchList = "watchlist"

// A Rule applies an action to requests.
type Rule struct {
	// Verb is a verb of RBAC (get, list, watch, create, …) or [WatchList];
	// empty: any. NotVerb excludes one.
	Verb, NotVerb string
	// Resource is the plural name of a resource, "pods"; empty: any, and
	// requests that are not for a resource, such as discovery.
	Resource string
	// Match, if not nil, must return true as well.
	Match func(*http.Request) bool
	// After is the number of matching requests to pass first. Times is the
	// number to act on then; 0: all of them.
	After, Times int
	// Action is the fault; nil only counts requests.
	Action Action

	mu   sync.Mutex
	seen int
	hits int
	gone chan struct{} // closed when the rule is removed
}

// Request is a parsed request: its verb and its resource.
type Request struct {
	Verb, Resource, Namespace, Name string
	// Initial reports whether a watch requests initial events.
	Initial bool
}

var infos = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

func requestOf(r *http.Request) Request {
	info, err := infos.NewRequestInfo(r)
	if err != nil {
		return Request{Verb: r.Method}
	}
	out := Request{Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name}
	out.Initial = out.Verb == "watch" && r.URL.Query().Get("sendInitialEvents") == "true"
	return out
}

// takes reports whether the rule acts on a request, and counts it.
func (rule *Rule) takes(req Request, r *http.Request) bool {
	if rule.Verb == WatchList && !req.Initial || rule.Verb != "" && rule.Verb != WatchList && rule.Verb != req.Verb {
		return false
	}
	if rule.NotVerb == WatchList && req.Initial || rule.NotVerb != "" && rule.NotVerb == req.Verb {
		return false
	}
	if rule.Resource != "" && rule.Resource != req.Resource || rule.Match != nil && !rule.Match(r) {
		return false
	}
	rule.mu.Lock()
	defer rule.mu.Unlock()
	rule.seen++
	if rule.Action == nil || rule.seen <= rule.After || rule.Times > 0 && rule.hits >= rule.Times {
		return false
	}
	rule.hits++
	return true
}

// Seen is the number of requests that the rule matched.
func (rule *Rule) Seen() int {
	rule.mu.Lock()
	defer rule.mu.Unlock()
	return rule.seen
}

// Hits is the number of requests the rule acted on.
func (rule *Rule) Hits() int {
	rule.mu.Lock()
	defer rule.mu.Unlock()
	return rule.hits
}
