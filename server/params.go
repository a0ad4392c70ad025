package server

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tidings-io/tidings/read"
)

// params is what a query string asks for.
type params struct {
	namespace string
	labels    labels.Selector // nil: none given
	fields    fields.Selector
	limit     int64
	token     string
	source    read.Source
	watch     bool
	since     string
	visible   bool
}

// listParams, watchParams and getParams are the parameters there are.
var (
	listParams  = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "limit", "continue", "source", "watch", "visible"}
	watchParams = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "source", "watch", "since", "visible"}
	getParams   = []string{"source", "watch"}
)

// parseParams reads a query string. Parameters that do not exist are an error:
// a misspelt selector must not show everything.
func parseParams(raw string) (params, error) {
	p := params{source: read.Cache}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return p, bad(nil, "the query string cannot be read: %v", err)
	}
	var selected []labels.Requirement
	for _, name := range sortedKeys(values) {
		given := values[name]
		if key, ok := labelKey(name); ok {
			for _, value := range given {
				r, err := labels.NewRequirement(key, selection.Equals, []string{value})
				if err != nil {
					return p, bad(nil, "%.200s: %v", name, err)
				}
				selected = append(selected, *r)
			}
			continue
		}
		if name == "labelSelector" {
			for _, value := range given {
				s, err := labels.Parse(value)
				if err != nil {
					return p, bad(nil, "labelSelector %.200q: %v", value, err)
				}
				requirements, _ := s.Requirements()
				selected = append(selected, requirements...)
			}
			continue
		}
		if len(given) > 1 {
			return p, bad(nil, "%.80q is given %d times", name, len(given))
		}
		if err := p.set(name, given[0]); err != nil {
			return p, err
		}
	}
	if len(selected) > 0 {
		p.labels = labels.NewSelector().Add(selected...)
	}
	return p, nil
}

// labelKey reads labels[key].
func labelKey(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "labels[")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "]")
}

// set reads one parameter that may be given once.
func (p *params) set(name, value string) error {
	var err error
	switch name {
	case "namespace":
		p.namespace = value
	case "fieldSelector":
		if p.fields, err = fields.ParseSelector(value); err != nil {
			return bad(nil, "fieldSelector %.200q: %v", value, err)
		}
	case "limit":
		p.limit, err = strconv.ParseInt(value, 10, 64)
		if err != nil || p.limit < 0 {
			return bad(nil, "limit: %.80q is not a number of objects", value)
		}
	case "continue":
		p.token = value
	case "source":
		switch p.source = read.Source(value); p.source {
		case read.Cache, read.Live:
		default:
			return bad([]string{string(read.Cache), string(read.Live)}, "there is no source %.80q: it is cache or live", value)
		}
	case "watch":
		p.watch, err = yes(name, value)
		return err
	case "visible":
		p.visible, err = yes(name, value)
		return err
	case "since":
		p.since = value
	default:
		return bad(listParams, "there is no parameter %.80q", name)
	}
	return nil
}

func yes(name, value string) (bool, error) {
	switch value {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, bad([]string{"true", "false"}, "%s is true or false, not %.80q", name, value)
}

// fit sees that the parameters go with what is asked for.
func (p *params) fit(raw string, exist []string) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(values) {
		generic := name
		if _, ok := labelKey(name); ok {
			generic = "labels[key]"
		}
		if !slices.Contains(exist, generic) {
			return bad(exist, "the parameter %.80q has no meaning here", name)
		}
	}
	return nil
}

func sortedKeys(values url.Values) []string {
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lastEventID is where a watch goes on: the header that an EventSource sends
// when it reconnects says so more recently than its URL does.
func lastEventID(r *http.Request, p params) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return p.since
}
