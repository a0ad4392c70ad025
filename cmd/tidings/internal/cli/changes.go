package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
)

// change is one change of an object in the past, or a time without a record.
type change struct {
	target target
	gap    *past.Gap // the others are empty
	past.Change
}

// when is the place of a change among others.
func (c *change) when() time.Time {
	if c.gap != nil {
		return c.gap.From
	}
	return c.Time
}

// writers are the names of those who wrote the version.
func (c *change) writers() string {
	var entries []struct {
		Manager string `json:"manager"`
	}
	_ = json.Unmarshal(c.Writers, &entries) // a server that sends something else names nobody
	var names []string
	for _, e := range entries {
		if n := len(names); n == 0 || names[n-1] != e.Manager {
			names = append(names, e.Manager)
		}
	}
	return strings.Join(names, ",")
}

// span is a time whose changes are read.
type span struct {
	since, until time.Time // since zero: the beginning; until zero: now
	objects      bool      // with whole objects
}

// changesOf yields the changes of a target, oldest first, with the gaps between them, a
// page at a time. reached, if not nil, is told the resourceVersion that a watch can go on
// from. An error is yielded last.
func (g *globals) changesOf(ctx context.Context, o target, s span, r *remarks, reached func(string)) iter.Seq2[*change, error] {
	return func(yield func(*change, error) bool) {
		all := s.since.IsZero()
		if all {
			s.since = time.Unix(0, 0)
		}
		values := url.Values{"changes": {"true"}, "since": {s.since.UTC().Format(time.RFC3339Nano)}}
		if !s.until.IsZero() {
			values.Set("until", s.until.UTC().Format(time.RFC3339Nano))
		}
		if s.objects {
			values.Set("objects", "true")
		}
		o.selectInto(values, g)
		var told time.Time // the beginning of the last gap
		for {
			a, err := o.askPast(ctx, values)
			var page []*change
			if err == nil {
				err = json.Unmarshal(a.Data, &page)
			}
			if err != nil {
				yield(nil, doing(err, "read the changes of %s", o))
				return
			}
			r.thinned(o.title(g), a.Thinned)
			if a.Begin.After(s.since) && !all {
				r.tell(fmt.Sprintf("%s: the history begins at %s", o.title(g), stamp(a.Begin)))
			}
			gaps := a.Gaps
			next := func(before time.Time) bool { // yields the gaps that begin before a time
				for len(gaps) > 0 && (before.IsZero() || gaps[0].From.Before(before)) {
					gap := gaps[0]
					if gaps = gaps[1:]; !gap.From.After(told) {
						continue // told with a page before
					}
					if told = gap.From; !yield(&change{target: o, gap: &gap}, nil) {
						return false
					}
				}
				return true
			}
			for _, c := range page {
				c.target = o
				if !next(c.Time) || !yield(c, nil) {
					return
				}
			}
			if a.Continue == "" {
				if next(time.Time{}) && reached != nil {
					reached(a.ResourceVersion)
				}
				return
			}
			values.Set("continue", a.Continue)
		}
	}
}

// inOrder merges sequences of changes by time. A sequence that fails does not end the
// others; the errors are returned.
func inOrder(sequences []iter.Seq2[*change, error], each func(*change) error) error {
	type source struct {
		next func() (*change, error, bool)
		head *change
	}
	var sources []*source
	var errs []error
	advance := func(s *source) {
		c, err, ok := s.next()
		if s.head = c; ok && err != nil {
			errs = append(errs, err)
		}
	}
	for _, sequence := range sequences {
		next, stop := iter.Pull2(sequence)
		defer stop()
		s := &source{next: next}
		advance(s)
		sources = append(sources, s)
	}
	for {
		var first *source
		for _, s := range sources {
			if s.head != nil && (first == nil || s.head.when().Before(first.head.when())) {
				first = s
			}
		}
		if first == nil {
			return errors.Join(errs...)
		}
		if err := each(first.head); err != nil {
			return err
		}
		advance(first)
	}
}
