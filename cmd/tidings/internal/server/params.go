package server

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// params are the parsed parameters of a query string.
type params struct {
	names     []string // of all parameters given
	namespace string
	// namespaces are those of a window or of changes that names several, sorted.
	namespaces []string
	clusters   string          // of a joint window
	labels     labels.Selector // nil: none given
	fields     fields.Selector
	limit      int64
	token      string
	source     read.Source
	watch      bool
	since      string
	until      string
	at         string
	changes    bool
	objects    bool
	counts     int // parts of the time to count changes in; 0: the changes themselves
	visible    bool
	window     *livetable.Params // of a window or a table; nil: none asked for
	table      bool              // one table, and not a window of it
	name       string            // of an object, for paths without one
	folded     bool
	version    uint64 // since it, changes that are folded; 0: since a time
	diff       bool
	tree       bool
	neighbours bool
	from, to   string
	with       string
}

// listParams, watchParams and getParams are the parameters of each verb.
var (
	listParams  = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "limit", "continue", "source", "watch", "visible", "at", "changes"}
	watchParams = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "source", "watch", "since", "visible"}
	getParams   = []string{"source", "watch", "at", "changes", "diff", "tree"}
	// windowParams are those of a window of a live table.
	windowParams = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "visible", "at", "window", "columns", "filter", "sort", "descending", "first", "count"}
	// tableParams are those of some rows of a table, once.
	tableParams = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "visible", "at", "table", "columns", "filter", "sort", "descending", "first", "count", "group"}
	// jointParams are those of a window of several clusters.
	jointParams = append([]string{"clusters"}, windowParams...)
	// changesParams are those of the changes of a list or an object.
	changesParams = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "limit", "continue", "changes", "since", "until", "objects", "counts"}
	// foldedParams are those of changes that are folded.
	foldedParams = []string{"namespace", "labels[key]", "labelSelector", "fieldSelector", "changes", "folded", "since", "until"}
	// diffParams are those of the difference between two objects.
	diffParams = []string{"diff", "from", "with", "to"}
	// treeParams are those of what belongs to an object.
	treeParams = []string{"tree", "neighbours", "source", "at"}
)

// parseParams parses a query string. An unknown parameter is an error: a misspelt
// selector must not select everything.
func parseParams(raw string) (params, error) {
	p := params{source: read.Cache}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return p, invalid(nil, "the query string is invalid: %v", err)
	}
	p.names = slices.Sorted(maps.Keys(values))
	if isTrue(values.Get("window")) || isTrue(values.Get("table")) {
		p.window = &livetable.Params{Count: defaultRows}
	}
	var selected []labels.Requirement
	for _, name := range p.names {
		occurrences := values[name]
		if key, ok := labelKey(name); ok {
			for _, value := range occurrences {
				r, err := labels.NewRequirement(key, selection.Equals, []string{value})
				if err != nil {
					return p, invalid(nil, "%.200s: %v", name, err)
				}
				selected = append(selected, *r)
			}
			continue
		}
		if name == "labelSelector" {
			for _, value := range occurrences {
				s, err := labels.Parse(value)
				if err != nil {
					return p, invalid(nil, "labelSelector %.200q: %v", value, err)
				}
				requirements, _ := s.Requirements()
				selected = append(selected, requirements...)
			}
			continue
		}
		if len(occurrences) > 1 {
			return p, invalid(nil, "%.80q is given %d times", name, len(occurrences))
		}
		if err := p.set(name, occurrences[0]); err != nil {
			return p, err
		}
	}
	if len(selected) > 0 {
		p.labels = labels.NewSelector().Add(selected...)
	}
	return p, nil
}

// labelKey parses labels[key].
func labelKey(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "labels[")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "]")
}

// set parses one parameter that may be given once.
func (p *params) set(name, value string) error {
	var err error
	switch name {
	case "namespace":
		p.namespace = value
	case "clusters":
		if p.window == nil {
			return invalid(nil, "clusters are a parameter of a window: add window=true")
		}
		p.clusters = value
	case "fieldSelector":
		if p.fields, err = fields.ParseSelector(value); err != nil {
			return invalid(nil, "fieldSelector %.200q: %v", value, err)
		}
	case "limit":
		p.limit, err = strconv.ParseInt(value, 10, 64)
		if err != nil || p.limit < 0 {
			return invalid(nil, "limit: %.80q is not a number of objects", value)
		}
	case "continue":
		p.token = value
	case "source":
		switch p.source = read.Source(value); p.source {
		case read.Cache, read.Live:
		default:
			return invalid([]string{string(read.Cache), string(read.Live)}, "there is no source %.80q: it is cache or live", value)
		}
	case "watch":
		p.watch, err = parseBool(name, value)
		return err
	case "visible":
		p.visible, err = parseBool(name, value)
		return err
	case "changes":
		p.changes, err = parseBool(name, value)
		return err
	case "diff":
		p.diff, err = parseBool(name, value)
		return err
	case "tree":
		p.tree, err = parseBool(name, value)
		return err
	case "neighbours":
		p.neighbours, err = parseBool(name, value)
		return err
	case "from":
		p.from = value
	case "to":
		p.to = value
	case "with":
		p.with = value
	case "objects":
		p.objects, err = parseBool(name, value)
		return err
	case "counts":
		if p.counts, err = strconv.Atoi(value); err != nil || p.counts < 1 || p.counts > maxCounts {
			return invalid(nil, "counts: %.80q is not a number of parts from 1 to %d", value, maxCounts)
		}
	case "folded":
		p.folded, err = parseBool(name, value)
		return err
	case "name":
		p.name = value
	case "window":
		_, err = parseBool(name, value)
		return err
	case "table":
		p.table, err = parseBool(name, value)
		return err
	case "columns", "filter", "sort", "descending", "first", "count", "group":
		if p.window == nil {
			return invalid(nil, "%s is a parameter of a table: add table=true, or window=true", name)
		}
		return p.setWindow(name, value)
	case "since":
		p.since = value
	case "until":
		p.until = value
	case "at":
		p.at = value
	default:
		return invalid(listParams, "there is no parameter %.80q", name)
	}
	return nil
}

// defaultRows is the number of rows of a window that names none.
const defaultRows = 100

// maxCounts is the number of parts of a time in which changes are counted.
const maxCounts = 500

// setWindow parses a parameter of a window.
func (p *params) setWindow(name, value string) (err error) {
	number := func() int {
		n, err := strconv.Atoi(value)
		if err != nil {
			return -1 // which is refused
		}
		return n
	}
	switch name {
	case "columns":
		if p.window.Columns = strings.Split(value, ","); value == "" {
			return invalid(nil, "columns: name some, or leave it out")
		}
	case "group":
		if p.window.Group = strings.Split(value, ","); value == "" {
			return invalid(nil, "group: name a column, or leave it out")
		}
	case "filter":
		p.window.Filter = value
	case "sort":
		p.window.Sort = value
	case "descending":
		p.window.Descending, err = parseBool(name, value)
	case "first":
		p.window.First = number()
	case "count":
		p.window.Count = number()
	}
	return err
}

func isTrue(value string) bool { return value == "true" || value == "1" }

func parseBool(name, value string) (bool, error) {
	switch value {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, invalid([]string{"true", "false"}, "%s is true or false, not %.80q", name, value)
}

// check checks that the verb has all the given parameters.
func (p *params) check(allowed []string) error {
	for _, name := range p.names {
		generic := name
		if _, ok := labelKey(name); ok {
			generic = "labels[key]"
		}
		if !slices.Contains(allowed, generic) {
			return invalid(allowed, "the parameter %.80q has no meaning here", name)
		}
	}
	return nil
}

// lastEventID returns the resume point of a watch. The header that an EventSource sends
// when it reconnects is newer than the parameter in its URL.
func lastEventID(r *http.Request, p params) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return p.since
}

// severalNamespaces parses the namespaces of a window, or of changes, if there are several.
func (p *params) severalNamespaces(resource cluster.Resource, rt route) error {
	switch {
	case p.visible:
		return invalid(nil, "visible=true is for all namespaces: leave it out, or the names")
	case !resource.Namespaced:
		return invalid(nil, "%s are not namespaced: leave out the namespaces", resource)
	case len(rt.rest) > 0:
		return invalid(nil, "the path has a namespace: leave out the others")
	}
	p.namespaces = slices.Compact(slices.Sorted(strings.SplitSeq(p.namespace, ",")))
	p.namespace = ""
	if len(p.namespaces) > maxNamespaces {
		return invalid(nil, "namespace: %d are named, and %d may be", len(p.namespaces), maxNamespaces)
	}
	for _, name := range p.namespaces {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return invalid(nil, "%.80q cannot be the name of a namespace: %s", name, strings.Join(problems, "; "))
		}
	}
	return nil
}
