package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/spelling"
)

// NotFoundError is the error for a resource that a cluster does not serve.
type NotFoundError struct {
	Cluster string   // the name of the cluster
	Arg     string   // the resource, as given
	Similar []string // resources with similar names
	// Failed holds the group versions whose discovery failed: the resource may
	// exist there.
	Failed map[schema.GroupVersion]error
}

// Error names the cluster, the resource and similar ones.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %q serves no resource %q", e.Cluster, e.Arg)
	if len(e.Similar) > 0 {
		fmt.Fprintf(&b, "; did you mean %s?", strings.Join(e.Similar, ", "))
	}
	if len(e.Failed) > 0 {
		gvs := make([]string, 0, len(e.Failed))
		for gv := range e.Failed {
			gvs = append(gvs, gv.String())
		}
		slices.Sort(gvs)
		fmt.Fprintf(&b, " (discovery of %s failed, so it may exist there)", strings.Join(gvs, ", "))
	}
	b.WriteString(` – "tidings api-resources" lists what can be watched`)
	return b.String()
}

// similar returns up to three resources with the names closest to arg.
func (c *catalogue) similar(arg string) []string {
	name, _, _ := strings.Cut(strings.ToLower(arg), ".")
	// Up to three typing errors in a long word, one in a short one.
	limit := min(3, 1+len(name)/4)
	type match struct {
		name     string
		distance int
	}
	var found []match
	seen := make(map[schema.GroupResource]bool)
	for _, r := range c.all {
		if seen[r.GroupResource()] {
			continue
		}
		seen[r.GroupResource()] = true
		best := limit + 1
		for _, known := range append([]string{r.Resource, r.Singular, strings.ToLower(r.Kind)}, r.ShortNames...) {
			if len(known) > 2 { // any two two-letter words are close
				best = min(best, spelling.Distance(name, known, limit))
			}
		}
		if best <= limit {
			found = append(found, match{r.String(), best})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, m := range found[:min(3, len(found))] {
		if m.distance == found[0].distance {
			out = append(out, m.name)
		}
	}
	return out
}
