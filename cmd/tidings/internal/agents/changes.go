package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// folded is an answer with changes.
type folded struct {
	Data            []past.Change `json:"data"`
	Gaps            []*past.Gap   `json:"gaps"`
	Begin           *time.Time    `json:"begin"`
	ResourceVersion string        `json:"resourceVersion"`
	More            bool          `json:"more"`
	Refused         []string      `json:"refused"`
	Thinned         string        `json:"thinned"`

	resource string
	since    time.Time // zero: a version
	header   http.Header
}

const (
	maxResources = 8
	maxFields    = 12  // of one change
	maxSide      = 120 // of a value before and after
)

// changes shows what has changed.
func (c *call) changes() (*answer, error) {
	resources := strings.Split(c.texts["resource"], ",")
	if len(resources) > maxResources {
		return nil, wrongf("resource: %d are named, and %d may be", len(resources), maxResources)
	}
	if len(resources) > 1 && c.texts["name"] != "" {
		return nil, wrongf("name: name one resource with it")
	}
	since := strings.Split(c.texts["since"], ",")
	if len(since) != 1 && len(since) != len(resources) {
		return nil, wrongf("since: it has %d versions, and %d resources are named", len(since), len(resources))
	}
	from, err := c.number("from", 0, 0, maxFrom)
	if err != nil {
		return nil, err
	}
	a := c.answer()
	var versions []string
	total := 0
	for i, resource := range resources {
		f, err := c.folded(strings.TrimSpace(resource), strings.TrimSpace(since[min(i, len(since)-1)]))
		if err != nil {
			if len(resources) > 1 {
				err = fmt.Errorf("%s: %w", quote(cut(resource, 80)), err)
			}
			return nil, err
		}
		versions = append(versions, f.ResourceVersion)
		total += len(f.Data)
		a.changes(f, len(resources) > 1)
	}
	if from > 0 {
		a.lines = a.lines[min(from, len(a.lines)):]
		a.head = append(a.head, fmt.Sprintf("Lines from %d.", from))
	}
	first := fmt.Sprintf("%s: %s changed since %s. version %s", c.of(), plural(total, "object has", "objects have"), quote(c.texts["since"]), quote(strings.Join(versions, ",")))
	a.head = append([]string{first}, a.head...)
	a.shorter = func(n int) string {
		return fmt.Sprintf("For the rest, from=%d with the same since, or select less.", from+n)
	}
	return a, nil
}

func (c *call) folded(resource, since string) (*folded, error) {
	path, err := c.path(resource)
	if err != nil {
		return nil, err
	}
	values := c.values("namespace", "name", "labelSelector", "fieldSelector", "until")
	values.Set("changes", "true")
	values.Set("folded", "true")
	values.Set("since", since)
	f := &folded{resource: resource}
	if m, err := read.ParseMoment(since, time.Now()); err == nil {
		f.since = m.Time
	}
	f.header, err = c.fetch(path, values, f)
	return f, err
}

// changes adds the lines of changes.
func (a *answer) changes(f *folded, several bool) {
	a.freshness(f.header)
	for _, g := range f.Gaps {
		to := "now"
		if g.To != nil {
			to = g.To.UTC().Format(time.RFC3339)
		}
		what := "changes may be missing"
		if g.Late {
			what = "changes were recorded late"
		}
		a.say("Gap from %s to %s: %s.", g.From.UTC().Format(time.RFC3339), to, what)
	}
	if f.Begin != nil && f.Begin.After(f.since) && !f.since.IsZero() {
		a.say("The history of %s begins at %s, later than asked for.", quote(f.resource), f.Begin.UTC().Format(time.RFC3339))
	}
	if f.Thinned != "" {
		a.say("Thinned: %s.", quote(f.Thinned))
	}
	if len(f.Refused) > 0 {
		a.say("Not permitted: namespaces %s", quote(cut(strings.Join(f.Refused, ", "), 300)))
	}
	if f.More {
		a.then("There are too many changes for one answer: go on with since=%s, or select less.", quote(f.ResourceVersion))
	}
	for _, change := range f.Data {
		name := change.Name
		if change.Namespace != "" {
			name = change.Namespace + "/" + name
		}
		line := change.Type + " "
		if several {
			line += f.resource + " "
		}
		line += name
		if !change.Time.IsZero() {
			line += ", " + duration.HumanDuration(time.Since(change.Time)) + " ago"
		}
		if change.Changes > 1 {
			line += ", " + strconv.Itoa(change.Changes) + " changes"
		}
		if by := writers(change.Writers); by != "" {
			line += ", by " + by
		}
		a.data(line)
		for i, field := range change.Fields {
			if i == maxFields {
				a.data(fmt.Sprintf("  and %d more fields", len(change.Fields)-i))
				break
			}
			text := fmt.Sprintf("  %s %s", field.Op, cut(field.Path, 2*maxSide))
			switch {
			case field.Old != nil && field.New != nil:
				text += ": " + cut(string(field.Old), maxSide) + " → " + cut(string(field.New), maxSide)
			case field.Old != nil:
				text += ": " + cut(string(field.Old), maxSide)
			case field.New != nil:
				text += ": " + cut(string(field.New), maxSide)
			}
			a.data(text)
		}
	}
}

// writers are the managers that have made a change.
func writers(raw json.RawMessage) string {
	var all []struct {
		Manager string `json:"manager"`
	}
	if json.Unmarshal(raw, &all) != nil {
		return ""
	}
	var names []string
	for _, w := range all {
		if !strings.Contains(strings.Join(names, ", "), w.Manager) {
			names = append(names, w.Manager)
		}
	}
	return cut(strings.Join(names, ", "), 100)
}
