package read

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// Moment is a moment in the past: a time or, if that is zero, a resourceVersion.
type Moment struct {
	Time    time.Time
	Version uint64
}

func (m Moment) String() string {
	if m.Time.IsZero() {
		return decimal(m.Version)
	}
	return m.Time.UTC().Format(time.RFC3339Nano)
}

// ParseMoment parses a moment: a time as in RFC 3339, a duration before now such as
// "-15m", or a resourceVersion. A moment that has not come yet is an error.
func ParseMoment(s string, now time.Time) (Moment, error) {
	if ago, err := time.ParseDuration(s); err == nil && s != "0" {
		if ago > 0 {
			return Moment{}, mirror.Invalidf("%.80q is in the future: a moment in the past begins with a minus, as in -15m", s)
		}
		return Moment{Time: now.Add(ago)}, nil
	}
	m, err := parseMoment(s)
	switch {
	case err != nil:
		return m, mirror.Invalidf("%.80q is not a moment: give a time such as %s, a duration before now such as -15m, or a resourceVersion", s, now.UTC().Truncate(time.Second).Format(time.RFC3339))
	case m.Time.After(now):
		return m, mirror.Invalidf("%.80q is in the future: it is %s", s, now.UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	return m, nil
}

// parseMoment parses what [Moment.String] returns.
func parseMoment(s string) (Moment, error) {
	if v, err := strconv.ParseUint(s, 10, 64); err == nil && v > 0 {
		return Moment{Version: v}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	return Moment{Time: at}, err
}

// Past says which moment an answer shows.
type Past struct {
	// Time and ResourceVersion of the newest change that the answer includes.
	Time            time.Time
	ResourceVersion string
	// Gap, if not nil, is a time without a record that the moment lies in. The answer
	// shows the state before it.
	Gap *history.Gap
	// Thinned, if not 0, is the time within which at most one version of an object is
	// kept: an object may have had other versions at the moment.
	Thinned time.Duration

	begin time.Time         // of the history
	later []*history.Series // oldest first; see [Reader.series]
}

// pageSlack is how much later a change may be recorded than it arrived. A state of the
// last moments may therefore be followed by changes of an earlier time.
const pageSlack = time.Minute

// pastPage returns the state that the query's token names, given the present state of its
// moment, which it closes if it returns another one. The two differ only by what was recorded late: the caller may
// read that moment, and no earlier one that a forged token could name.
func (r *Reader) pastPage(q *Query, now *history.State) (*history.State, error) {
	t, err := q.decodeToken()
	if err != nil || t.Cursor == now.Cursor() {
		return now, err
	}
	page, err := now.Earlier(t.Cursor, pageSlack)
	switch {
	case err != nil:
		return now, err
	case page == nil:
		return now, errStale
	}
	return page, now.Close()
}

// GetPast returns an object at the query's moment.
func (r *Reader) GetPast(q *Query) (*Object, Past, error) {
	s, past, err := r.pastState(q)
	if err != nil {
		return nil, past, err
	}
	defer s.Close()
	v, ok, err := s.Get(object.Key(q.params.Namespace, q.params.Name))
	if err == nil && !ok {
		err = q.notFound()
	}
	if err != nil {
		return nil, past, err
	}
	o, err := q.decodePast(v)
	return o, past, err
}

// listPast calls each for the objects of a list at the query's moment, or of a page of it.
// It has one object in memory at a time.
func (r *Reader) listPast(ctx context.Context, q *Query, each func(*Object) error) (ListMeta, error) {
	s, past, err := r.pastState(q)
	if err != nil {
		return ListMeta{}, err
	}
	defer func() { _ = s.Close() }()
	meta := ListMeta{ResourceVersion: past.ResourceVersion, Remaining: -1, Past: &past}
	from := ""
	if q.params.Continue != "" {
		if _, _, from, err = q.Page(); err == nil {
			s, err = r.pastPage(q, s)
		}
		if err != nil {
			return meta, err
		}
	}
	if q.invalidNamespace() {
		return meta, nil
	}
	n, last := int64(0), ""
	err = q.eachPast(ctx, s, from, func(key string, o *Object) error {
		if n++; q.params.Limit > 0 && n > q.params.Limit {
			meta.Continue = q.pastToken(s.Cursor(), last)
			return errStopped
		}
		last = key
		return each(o)
	})
	if err == errStopped {
		err = nil
	}
	return meta, err
}

// eachPast calls each for the selected objects of a state whose keys are after a key.
func (q *Query) eachPast(ctx context.Context, s *history.State, after string, each func(key string, o *Object) error) error {
	var seen selectorCache
	visited := 0
	for v, err := range s.All(q.Namespace(), after) {
		if err != nil {
			return err
		}
		if visited++; visited%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o, err := q.decodePast(v)
		if err != nil {
			return err
		}
		if q.matches(o, &seen) {
			if err := each(v.Key, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectPast returns the selected objects of a state whose keys are after a key, at most
// limit of them if limit is not 0.
func (q *Query) collectPast(ctx context.Context, s *history.State, after string, limit int64) (found []*Object, err error) {
	err = q.eachPast(ctx, s, after, func(_ string, o *Object) error {
		if found = append(found, o); limit > 0 && int64(len(found)) == limit {
			return errStopped
		}
		return nil
	})
	if err == errStopped {
		err = nil
	}
	return found, err
}

// exactPast returns the state at a version from the history, nil if it does not have that
// very state: it lies in a gap, versions were thinned, or the namespace that the query is
// limited to may have been another one then.
func (r *Reader) exactPast(ctx context.Context, q *Query, version uint64) *history.State {
	if r.opts.History == nil || r.opts.History.Thinned(q.resource) != 0 {
		return nil
	}
	series := r.opts.History.Series(q.params.Cluster, q.resource, q.params.Namespace)
	if len(series) == 0 {
		return nil
	}
	s, err := series[0].AtVersion(version)
	if err != nil {
		return nil
	}
	if s.Gap == nil {
		same := q.Namespace() == ""
		if !same {
			same, err = namespaceExisted(ctx, q.params.Cluster, q.Namespace(), s.Time)
		}
		if err == nil && same {
			return s
		}
	}
	_ = s.Close()
	return nil
}

// namespaceExisted reports whether the present namespace of a name was there at a time.
func namespaceExisted(ctx context.Context, c *mirror.Cluster, name string, at time.Time) (bool, error) {
	now, err := history.Namespace(ctx, c, name)
	return err == nil && now != nil && !now.CreationTimestamp.After(at), err
}

// decodePast returns a version as an object.
func (q *Query) decodePast(v history.Version) (*Object, error) {
	o, err := q.objects.Decode(codec.JSON, v.Object)
	if err != nil {
		return nil, fmt.Errorf("read %s of the history of %s: %w", v.Key, q, err)
	}
	return o, nil
}

// SameNamespace reports whether the namespace that the query is limited to is the one of
// the same name at the query's moment. If it is not, because it was deleted and perhaps
// created again since, then the rights in the present namespace say nothing about the past
// one. A query that is limited to no namespace has the same one.
func (r *Reader) SameNamespace(ctx context.Context, q *Query) (bool, error) {
	if q.params.At == nil || q.params.Namespace == "" || r.opts.History == nil { // without a history nothing of the past is read
		return true, nil
	}
	at := q.params.At.Time
	if at.IsZero() {
		s, past, err := r.pastState(q)
		if err != nil {
			return false, err
		}
		_ = s.Close()
		at = past.Time
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.opts.Wait, errTimeout)
	defer cancel()
	same, err := namespaceExisted(ctx, q.params.Cluster, q.params.Namespace, at.Add(-pageSlack))
	switch {
	case apierrors.IsForbidden(err):
		return false, nil // it is not known
	case err != nil:
		return false, q.params.Cluster.Upstream("", err)
	}
	return same, nil
}

// PastResource returns a resource of a cluster by its history: one that the cluster does
// not serve any more, or while the cluster cannot be asked.
func (r *Reader) PastResource(c *mirror.Cluster, group, version, name string) (cluster.Resource, bool) {
	if r.opts.History == nil {
		return cluster.Resource{}, false
	}
	if !strings.Contains(name, ".") {
		name = history.Plural(name)
	}
	return r.opts.History.Resource(c, group, version, name)
}

// PastChange is a change of an object that a query selects.
type PastChange struct {
	// Type is Added if the object appeared or began to match, Deleted if it was deleted
	// or no longer matched, and else Modified.
	Type            EventType
	Time            time.Time // of its arrival at the mirror
	Object          *Object   // for Deleted, its last state
	Before          *Object   // the state before; nil if there was none, or it is not kept
	ResourceVersion string
	// Writers are the entries of managedFields that changed, as JSON, without fields.
	Writers []byte
	// Relist says that a list found the change, some time after it happened.
	Relist bool
}

// Owners returns the uids of the object's owners.
func (c PastChange) Owners() (uids []string) {
	for _, uid := range gjson.GetBytes(c.Object.JSON(), "metadata.ownerReferences.#.uid").Array() {
		uids = append(uids, uid.String())
	}
	return uids
}

// PastMeta is the metadata of changes.
type PastMeta struct {
	// ResourceVersion is that of the last change. On the last page it is the one up to
	// which there are no other changes; a watch can go on from it.
	ResourceVersion string
	Continue        string        // the token of the next page, empty on the last one
	Gaps            []history.Gap // that end after the first and begin before the last change of the page
	Thinned         time.Duration // see [Past]
	Begin           time.Time     // of the history
}

// maxChanges is the number of changes on a page, and maxChangeBytes the size of their
// objects after which a page ends.
const (
	maxChanges     = 500
	maxChangeBytes = 16 << 20
)

// ChangesBetween returns the changes of the objects that the query selects between its
// times, oldest first, a page at a time.
func (r *Reader) ChangesBetween(ctx context.Context, q *Query) (found []PastChange, meta PastMeta, err error) {
	begin, past, err := r.pastState(q)
	if err != nil {
		return nil, meta, err
	}
	defer begin.Close()
	logs, err := q.pastLogs(begin, past)
	if err != nil {
		return nil, meta, err
	}
	limit := int(min(q.params.Limit, maxChanges))
	if limit <= 0 {
		limit = maxChanges
	}
	meta.Thinned, meta.Begin = past.Thinned, past.begin
	first, last := q.params.At.Time, q.params.Until
	var seen selectorCache
	cursor, size := "", 0
read:
	for _, log := range logs {
		for c, err := range log.Read(ctx, q.params.Until) {
			if err != nil {
				return nil, meta, err
			}
			out, selected, err := q.pastChange(c, &seen)
			if err != nil {
				return nil, meta, err
			}
			if !selected {
				continue
			}
			if n := len(found); n == limit || size >= maxChangeBytes {
				last, meta.Continue = found[n-1].Time, q.pastToken(cursor, "")
				break read
			}
			if size += len(c.Object); c.Before != nil {
				size += len(c.Before.Object)
			}
			found = append(found, out)
			meta.ResourceVersion = out.ResourceVersion
			cursor = log.Cursor()
		}
	}
	if meta.Continue == "" {
		meta.ResourceVersion = decimal(logs[len(logs)-1].Reached())
	}
	meta.Gaps = pastGaps(begin, past, first, last)
	return found, meta, nil
}

// PastCounts says how far back a history reaches, and when there were changes.
type PastCounts struct {
	// Begin and End are the reach of the history; both are zero if there is none yet.
	Begin, End time.Time
	// Counts are the numbers of changes in equal parts of the query's time.
	Counts []int
	// Until is the time up to which the changes have been counted. It is before the end of
	// the query's time if they are too many.
	Until time.Time
	Gaps  []history.Gap
}

// maxCounted is the number of changes that are counted for one request, and maxSelected the
// number of those whose objects are read, for a query with selectors.
const (
	maxCounted  = 2_000_000
	maxSelected = 10_000
)

// CountChanges counts the changes that the query selects between its times, in a number of
// equal parts.
func (r *Reader) CountChanges(ctx context.Context, q *Query, parts int) (PastCounts, error) {
	out := PastCounts{Counts: make([]int, parts), Until: q.params.Until}
	all, err := r.series(q)
	if mirror.ReasonOf(err) == mirror.Expired {
		return out, nil // it begins when the resource is first read
	}
	if err != nil {
		return out, err
	}
	since, until := q.params.At.Time, q.params.Until
	out.Begin = all[len(all)-1].Begin()
	out.End, _ = all[0].Seen()
	if out.Begin.IsZero() || out.Begin.After(until) {
		return out, nil
	}
	begin, past, err := r.pastState(q)
	if err != nil {
		return out, err
	}
	defer begin.Close()
	logs, err := q.pastLogs(begin, past)
	if err != nil {
		return out, err
	}
	out.Gaps = pastGaps(begin, past, since, until)
	n, most := 0, maxCounted
	if q.selective() {
		most = maxSelected
	}
	for _, log := range logs {
		for at, err := range q.changeTimes(ctx, log) {
			if err != nil {
				return out, err
			}
			if n++; n > most {
				out.Until = at.time
				return out, nil
			}
			part := int(float64(parts) * float64(at.time.Sub(since)) / float64(max(1, until.Sub(since))))
			if part >= 0 && at.selected {
				out.Counts[min(part, parts-1)]++
			}
		}
	}
	return out, nil
}

// changeTime is when an object changed that the query may select, and whether it does.
type changeTime struct {
	time     time.Time
	selected bool
}

// changeTimes yields the times of the changes of a log. The objects are read if the query
// has selectors, and not otherwise.
func (q *Query) changeTimes(ctx context.Context, log *history.Log) iter.Seq2[changeTime, error] {
	return func(yield func(changeTime, error) bool) {
		if !q.selective() {
			for at, err := range log.Times(ctx, q.params.Until) {
				if !yield(changeTime{at, true}, err) {
					return
				}
			}
			return
		}
		var seen selectorCache
		for c, err := range log.Read(ctx, q.params.Until) {
			at := changeTime{time: c.Time}
			if err == nil {
				_, at.selected, err = q.pastChange(c, &seen)
			}
			if !yield(at, err) {
				return
			}
		}
	}
}

// selectsKey reports whether the query may select an object, by its key alone.
func (q *Query) selectsKey(key string) bool {
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	return (q.params.Namespace == "" || namespace == q.params.Namespace) && q.includes(namespace) && (q.params.Name == "" || name == q.params.Name)
}

// pastChange returns a change as the query sees it.
func (q *Query) pastChange(c history.Change, seen *selectorCache) (out PastChange, selected bool, err error) {
	out = PastChange{Time: c.Time, ResourceVersion: decimal(c.ResourceVersion), Writers: c.Writers, Relist: c.Relist}
	if out.Object, err = q.decodePast(c.Version); err != nil {
		return out, false, err
	}
	if c.Before != nil {
		if out.Before, err = q.decodePast(*c.Before); err != nil {
			return out, false, err
		}
	}
	is := q.selects(out.Object, seen)
	was := c.Type == history.Updated && !q.selective() || out.Before != nil && q.selects(out.Before, seen)
	switch {
	case c.Type == history.Deleted:
		out.Type = Deleted
		return out, is, nil
	case is && was:
		out.Type = Modified
	case is:
		out.Type = Added
	default:
		out.Type = Deleted
	}
	return out, is || was, nil
}

// selective says that an object can begin or end to match the query by a change.
func (q *Query) selective() bool {
	p := q.params
	return p.Labels != nil && !p.Labels.Empty() || p.Fields != nil && !p.Fields.Empty()
}

// selects is matches for a query of one object, too.
func (q *Query) selects(o *Object, seen *selectorCache) bool {
	return q.params.Verb == Get || q.matches(o, seen)
}
