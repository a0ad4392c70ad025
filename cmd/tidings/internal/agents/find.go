package agents

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
)

// table is an answer with rows.
type table struct {
	Data struct {
		Columns []struct {
			Name string `json:"name"`
		} `json:"columns"`
		Total   int                          `json:"total"`
		Objects int                          `json:"objects"`
		Keys    []string                     `json:"keys"`
		Rows    map[string][]json.RawMessage `json:"rows"`
		Groups  *struct {
			Largest []struct {
				Values []json.RawMessage `json:"values"`
				Rows   int               `json:"rows"`
			} `json:"largest"`
			Distinct int  `json:"distinct"`
			Rest     int  `json:"rest"`
			More     bool `json:"more"`
		} `json:"groups"`
		Moment *past.Moment `json:"moment"`
		Time   int64        `json:"time"`
	} `json:"data"`
	Visible *struct {
		All        bool     `json:"all"`
		Namespaces []string `json:"namespaces"`
		Refused    []string `json:"refused"`
	} `json:"visible"`
	ResourceVersion string `json:"resourceVersion"`
}

const (
	defaultRows = 50
	maxRows     = 500
	maxFrom     = 1 << 30
)

// rows asks for a table. The answer has what is to be said of all of it.
func (c *call) rows(values url.Values) (*table, *answer, error) {
	values.Set("table", "true")
	if c.texts["namespace"] == "" && !values.Has("at") {
		values.Set("visible", "true")
	}
	path, err := c.path(c.texts["resource"])
	if err != nil {
		return nil, nil, err
	}
	t := new(table)
	header, err := c.fetch(path, values, t)
	if err != nil {
		return nil, nil, err
	}
	a := c.answer()
	if m := t.Data.Moment; m != nil {
		a.moment(m)
	} else {
		a.freshness(header)
	}
	if v := t.Visible; v != nil && !v.All {
		a.say("Only of %s that you may read: %s", plural(len(v.Namespaces), "namespace", "namespaces"), quote(cut(strings.Join(v.Namespaces, ", "), 300)))
		if len(v.Refused) > 0 {
			a.say("Not permitted: %s", quote(cut(strings.Join(v.Refused, ", "), 300)))
		}
	}
	return t, a, nil
}

// moment says which moment an answer shows.
func (a *answer) moment(m *past.Moment) {
	a.say("State of the past: after the change at %s, version %s.", m.Time.UTC().Format(time.RFC3339), quote(m.ResourceVersion))
	if g := m.Gap; g != nil {
		a.say("Gap: from %s on nothing is recorded for a time (%s). This is the state before it.", g.From.UTC().Format(time.RFC3339), quote(cut(g.Reason, 200)))
	}
	if m.Thinned != "" {
		a.say("Thinned: %s.", quote(m.Thinned))
	}
}

// find lists objects.
func (c *call) find() (*answer, error) {
	values := c.values("namespace", "labelSelector", "fieldSelector", "filter")
	if moment := c.texts["moment"]; moment != "" {
		values.Set("at", moment)
	}
	limit, err := c.number("limit", defaultRows, 1, maxRows)
	if err != nil {
		return nil, err
	}
	from, err := c.number("from", 0, 0, maxFrom)
	if err != nil {
		return nil, err
	}
	values.Set("count", strconv.Itoa(limit))
	values.Set("first", strconv.Itoa(from))
	if columns := c.lists["columns"]; len(columns) > 0 {
		values.Set("columns", strings.Join(columns, ","))
	}
	if sort := c.texts["sort"]; sort != "" {
		name, descending := strings.CutPrefix(sort, "-")
		values.Set("sort", name)
		values.Set("descending", strconv.FormatBool(descending))
	}
	t, a, err := c.rows(values)
	if err != nil {
		return nil, err
	}
	version := t.ResourceVersion
	shown := len(t.Data.Keys)
	span := "none shown"
	if shown > 0 {
		span = fmt.Sprintf("%d to %d shown", from, from+shown-1)
	}
	first := fmt.Sprintf("%s: %d of %d match, %s. version %s", c.of(), t.Data.Total, t.Data.Objects, span, quote(version))
	a.head = append([]string{first}, a.head...)
	if shown > 0 {
		names := make([]string, len(t.Data.Columns))
		for i, column := range t.Data.Columns {
			names[i] = column.Name
		}
		a.row(names)
	}
	now := time.UnixMilli(t.Data.Time)
	if t.Data.Moment != nil {
		now = t.Data.Moment.Time
	}
	for _, key := range t.Data.Keys {
		row := t.Data.Rows[key]
		texts := make([]string, len(row))
		for i, cell := range row {
			texts[i] = cellText(cell, now)
		}
		a.row(texts)
	}
	if left := t.Data.Total - from - shown; left > 0 {
		a.then("%d more: from=%d.", left, from+shown)
	}
	a.shorter = func(n int) string {
		return fmt.Sprintf("For the rest, from=%d, fewer columns, or raise maxBytes.", from+max(0, n-1))
	}
	return a, nil
}

// cellText returns a cell as kubectl prints it.
func cellText(raw json.RawMessage, now time.Time) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var since struct {
		Since         *int64
		Before, After string
	}
	if json.Unmarshal(raw, &since) == nil && since.Since != nil {
		return since.Before + duration.HumanDuration(now.Sub(time.Unix(*since.Since, 0))) + since.After
	}
	return string(raw) // a number or a boolean
}

// count counts objects.
func (c *call) count() (*answer, error) {
	values := c.values("namespace", "labelSelector", "fieldSelector", "filter")
	by := c.lists["by"]
	values.Set("count", "1")
	if len(by) > 0 {
		values.Set("group", strings.Join(by, ","))
	}
	t, a, err := c.rows(values)
	if err != nil {
		return nil, err
	}
	groups := ""
	if g := t.Data.Groups; g != nil {
		groups = fmt.Sprintf(" in %s", plural(g.Distinct, "group", "groups"))
		if g.More {
			groups += " or more"
		}
		if len(g.Largest) > 0 {
			a.row(append([]string{"Count"}, by...))
		}
		for _, one := range g.Largest {
			row := []string{strconv.Itoa(one.Rows)}
			for _, v := range one.Values {
				row = append(row, cellText(v, time.UnixMilli(t.Data.Time)))
			}
			for i := range row {
				if row[i] == "null" {
					row[i] = "<none>"
				}
			}
			a.row(row)
		}
		if g.Rest > 0 {
			a.then("%d more objects are in smaller groups.", g.Rest)
		}
	}
	a.head = append([]string{fmt.Sprintf("%s: %d of %d match%s. version %s", c.of(), t.Data.Total, t.Data.Objects, groups, quote(t.ResourceVersion))}, a.head...)
	return a, nil
}

// at is find or get of a moment.
func (c *call) at() (*answer, error) {
	if c.texts["name"] != "" {
		return c.get()
	}
	return c.find()
}
