package churn

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
)

// differences returns where got differs from want in what must be equal, and
// the calls in either that its changes do not account for.
func differences(want, got *record) []string {
	var found []string
	for i, w := range want.phases {
		g := got.phases[i]
		report := func(format string, args ...any) {
			found = append(found, w.name+": "+fmt.Sprintf(format, args...))
		}
		if w.racy {
			for _, r := range []*record{want, got} {
				for _, excess := range r.excess(r.phases[i]) {
					report("%s: %s", r.engine, excess)
				}
			}
			usual := kinds(want.phases)
			for kind := range kinds(got.phases[i : i+1]) {
				if !usual[kind] {
					report("%s asked for what %s never asks for: %s", got.engine, want.engine, kind)
				}
			}
			continue
		}
		if odd := diffLines(w.comparedCalls(), g.comparedCalls()); odd != "" {
			report("calls of the controller on %s (-) and on %s (+):\n%s", want.engine, got.engine, odd)
		}
		collections := map[string]bool{}
		for _, p := range []phase{w, g} {
			for collection := range p.requests {
				collections[collection] = true
			}
		}
		for _, collection := range slices.Sorted(maps.Keys(collections)) {
			a, b := lines(w.comparedRequests(collection)), lines(g.comparedRequests(collection))
			if !slices.Equal(a, b) {
				report("%s, requests on %s:\n\t%s\non %s:\n\t%s", path.Base(collection), want.engine, strings.Join(a, "\n\t"), got.engine, strings.Join(b, "\n\t"))
			}
		}
	}
	if odd := diffLines(want.end, got.end); odd != "" {
		found = append(found, fmt.Sprintf("objects in the end on %s (-) and on %s (+):\n%s", want.engine, got.engine, odd))
	}
	return found
}

// comparedRequests returns the requests of a reflector that do not depend on
// timing.
func (p phase) comparedRequests(collection string) []request {
	if !p.outage {
		return p.requests[collection]
	}
	return slices.DeleteFunc(slices.Clone(p.requests[collection]), func(r request) bool { return !r.answered() })
}

// comparedCalls returns the calls of a controller without discovery. When and
// how often controller-runtime's REST mapper asks has nothing to do with
// informers.
func (p phase) comparedCalls() []string {
	return lines(slices.DeleteFunc(slices.Clone(p.calls), func(c Call) bool {
		return c.Verb == http.MethodGet && discovery.MatchString(c.Path)
	}))
}

var discovery = regexp.MustCompile(`^/(api(/[^/]+)?|apis(/[^/]+){0,2})(\?.*)?$`)

// kinds returns the kinds of requests, by collection.
func kinds(phases []phase) map[string]bool {
	set := map[string]bool{}
	for _, p := range phases {
		for collection, asked := range p.requests {
			for _, request := range asked {
				set[path.Base(collection)+": "+request.shape] = true
			}
		}
	}
	return set
}

// excess returns the calls in p that no step of p can have caused.
func (r *record) excess(p phase) []string {
	steps := map[string]int{} // by parent
	for _, s := range p.steps {
		steps[s.name]++
	}
	type object struct{ verb, collection, name string }
	writes, values := map[object]int{}, map[string]int{}
	var found []string
	for _, c := range p.calls {
		if c.Verb == http.MethodGet || c.Status >= http.StatusBadRequest || c.Status == 0 {
			continue
		}
		o := object{verb: c.Verb}
		o.collection, o.name = path.Split(strings.TrimSuffix(c.Path, "/status"))
		if c.Verb == http.MethodPost {
			metadata, _ := c.Body["metadata"].(map[string]any)
			o.collection = c.Path + "/"
			o.name, _ = metadata["name"].(string)
		}
		writes[o]++
		if value, ok := r.value(c.Body); ok {
			child := o.collection + o.name
			if value < values[child] {
				found = append(found, fmt.Sprintf("value %d was sent after %d: %s", value, values[child], c))
			}
			values[child] = value
		}
	}
	for o, n := range writes {
		if allowed := steps[parentIn(o.name)]; n > allowed {
			found = append(found, fmt.Sprintf("%d times %s %s%s, but only %d things happened to %q and its children", n, o.verb, o.collection, o.name, allowed, parentIn(o.name)))
		}
	}
	return slices.Sorted(slices.Values(found))
}

// parentIn returns the parent whose name is part of a child's name.
func parentIn(child string) string {
	for i := range names {
		if strings.Contains(child, nameOf(i)) {
			return nameOf(i)
		}
	}
	return ""
}

// lines formats values.
func lines[T fmt.Stringer](values []T) []string {
	var lines []string
	for _, v := range values {
		lines = append(lines, v.String())
	}
	return lines
}

// diffLines compares two multisets. It returns, in order, the lines that are
// only in want (-) or only in got (+).
func diffLines(want, got []string) string {
	count := map[string]int{}
	for _, line := range want {
		count[line]--
	}
	for _, line := range got {
		count[line]++
	}
	var out strings.Builder
	for _, line := range slices.Sorted(maps.Keys(count)) {
		for n := count[line]; n < 0; n++ {
			fmt.Fprintf(&out, "\t- %s\n", line)
		}
		for n := count[line]; n > 0; n-- {
			fmt.Fprintf(&out, "\t+ %s\n", line)
		}
	}
	return out.String()
}
