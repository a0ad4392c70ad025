package read

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/object"
)

// series returns the histories of a query's resource, newest first. There are several if
// the resource was mirrored again, with another version or scope. The rights are those of
// the resource as it is now: the query has no namespace if that has none.
func (r *Reader) series(q *Query) ([]*history.Series, error) {
	if r.opts.History == nil {
		return nil, mirror.Invalidf("this server keeps no history: start it with --history")
	}
	if !r.opts.History.Records(q.resource) {
		return nil, &mirror.Error{Reason: mirror.Withheld, Message: fmt.Sprintf("no history of %s is kept: start the server with --history-secrets", q)}
	}
	found := r.opts.History.Series(q.params.Cluster, q.resource, q.params.Namespace)
	switch {
	case len(found) == 0:
		return nil, &mirror.Error{Reason: mirror.Expired, Message: fmt.Sprintf("there is no history of %s: it begins when the resource is first read, or when the server starts for those that --resource names", q)}
	case len(found) > 1 && found[0].Begin().IsZero(): // its first list is not complete
		found = found[1:]
	}
	return found, nil
}

// pastState returns the state of the query's moment. It must be closed.
func (r *Reader) pastState(q *Query) (*history.State, Past, error) {
	all, err := r.series(q)
	if err != nil {
		return nil, Past{}, err
	}
	past := Past{Thinned: r.opts.History.Thinned(q.resource), begin: all[len(all)-1].Begin()}
	var s *history.State
	for i, series := range all {
		at := *q.params.At
		if i == len(all)-1 && !q.params.Until.IsZero() && at.Time.Before(past.begin) {
			at.Time = past.begin // of the changes since before the history began, there are those since then
		}
		s, err = stateAt(series, at)
		if i > 0 {
			s, err = beforeAgain(series, all[i-1], s, err)
		}
		if before := (*history.BeginError)(nil); err == nil || !errors.As(err, &before) {
			past.later = slices.Clone(all[:i])
			break
		}
	}
	if err != nil {
		return nil, Past{}, pastError(q, err)
	}
	slices.Reverse(past.later)
	past.Time, past.ResourceVersion, past.Gap = s.Time, decimal(s.ResourceVersion), s.Gap
	return s, past, nil
}

func stateAt(series *history.Series, at Moment) (*history.State, error) {
	if at.Time.IsZero() {
		return series.AtVersion(at.Version)
	}
	return series.At(at.Time)
}

// again is the gap between two histories of a resource that was defined again.
func again(older, newer *history.Series) history.Gap {
	from, version := older.Seen()
	return history.Gap{From: from, To: newer.Begin(), After: version, Reason: "the resource was mirrored again, with another version or scope"}
}

// beforeAgain returns the result of stateAt for a history that was followed by another:
// moments after its end are in the gap between the two.
func beforeAgain(older, newer *history.Series, s *history.State, err error) (*history.State, error) {
	gap := again(older, newer)
	if future := (*history.FutureError)(nil); errors.As(err, &future) {
		s, err = older.AtVersion(gap.After)
	} else if err != nil || s.Gap == nil || !s.Gap.To.IsZero() {
		return s, err
	}
	if err == nil {
		s.Gap = &gap
	}
	return s, err
}

// pastLogs returns the changes that the query selects after its state, or after those of
// its continue token, of each history in turn. It closes nothing.
func (q *Query) pastLogs(begin *history.State, past Past) ([]*history.Log, error) {
	from, continued := begin.Cursor(), false
	if q.params.Continue != "" {
		t, err := q.decodeToken()
		if err != nil {
			return nil, err
		}
		from, continued = t.Cursor, true
	}
	var logs []*history.Log
	if first := q.pastLog(begin, from); first != nil {
		logs = append(logs, first)
	}
	for _, series := range past.later {
		switch log := series.Changes(from, q.selectsKey); {
		case len(logs) > 0:
			logs = append(logs, series.Changes("", q.selectsKey))
		case continued && log != nil:
			logs = append(logs, log)
		}
	}
	if len(logs) == 0 {
		return nil, errStale
	}
	return logs, nil
}

// pastLog returns the changes after a cursor of the history of a state.
func (q *Query) pastLog(begin *history.State, from string) *history.Log {
	p, sameScope := q.params, begin.Series().Of.Namespaced == q.resource.Namespaced
	if p.Name != "" && sameScope && (p.Namespace != "" || !q.resource.Namespaced) {
		return begin.ChangesOf(from, object.Key(p.Namespace, p.Name))
	}
	return begin.ChangesAfter(from, q.selectsKey)
}

// pastGaps lists the gaps of all histories of the query, oldest first, that end after since
// and begin before until.
func pastGaps(begin *history.State, past Past, since, until time.Time) []history.Gap {
	older := begin.Series()
	gaps := older.Gaps(since, until)
	for _, series := range past.later {
		if g := again(older, series); g.To.After(since) && g.From.Before(until) {
			gaps = append(gaps, g)
		}
		gaps = append(gaps, series.Gaps(since, until)...)
		older = series
	}
	return gaps
}

func pastError(q *Query, err error) error {
	if begin := (*history.BeginError)(nil); errors.As(err, &begin) {
		return &mirror.Error{Reason: mirror.Expired, Err: err, Message: err.Error()}
	}
	if future := (*history.FutureError)(nil); errors.As(err, &future) {
		return &mirror.Error{Reason: mirror.Invalid, Err: err, Message: fmt.Sprintf("%s: %v", q, err)}
	}
	return err
}
