package read

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/mirror"
)

// Match says which states of a resource will do, as the Kubernetes API has it
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
type Match uint8

const (
	// Any: whatever the mirror has.
	Any Match = iota
	// Latest: not older than what the cluster had at the time of asking.
	Latest
	// NotOlderThan a given resourceVersion.
	NotOlderThan
	// Exact: the state at a given resourceVersion, which the mirror has for as
	// long as it is held for the pages of a list or within the changes that
	// [mirror.Options.Retain] keeps.
	Exact
)

// TooLargeError says that a resourceVersion is of the future.
type TooLargeError struct{ Want, Have uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Want, e.Have)
}

// ListMeta says what was listed.
type ListMeta struct {
	// ResourceVersion the list is of; a watch may begin there.
	ResourceVersion string
	// Continue is the token of the next page, empty on the last one.
	Continue string
	// Remaining is the number of objects after this page, -1 if unknown.
	Remaining int64
}

// State is what a query selects of one state of its resource. It must be released.
type State struct {
	reader  *Reader
	query   *Query
	caller  string
	feed    *feed
	view    *informer.View[*codec.Raw]
	page    *page // that the view belongs to, if it is held
	version string
	before  map[string]*Object // what was different at the version, by key; nil if it was not there
	live    []*Object          // what the cluster itself has answered the query with; then there is no view
}

// tooLargePatience is how long a version that the cluster does not have yet is
// waited for, as kube-apiserver does.
const tooLargePatience = 3 * time.Second

// State returns a state of the query's resource that matches, from the cache. The
// version is for [NotOlderThan] and [Exact]. Errors are [*mirror.Error]s, of reason
// Expired for what is too old, [*TooLargeError]s, or the context's.
func (r *Reader) State(ctx context.Context, q *Query, match Match, version uint64) (*State, error) {
	f, view, err := r.pin(ctx, q)
	if err != nil {
		return nil, err
	}
	s := &State{reader: r, query: q, caller: CallerOf(ctx), feed: f, view: view, version: view.ResourceVersion()}
	have := object.Version(s.version)
	if match == Any || match == NotOlderThan && have >= version {
		return s, nil
	}
	view.Release()
	switch match {
	case Latest:
		return r.latest(ctx, q, f)
	case NotOlderThan, Exact:
		if f.version() < version {
			if err := f.during(ctx, func(ctx context.Context) error { return f.future(ctx, version) }); err != nil {
				return nil, err
			}
		}
		if match == Exact {
			return r.past(ctx, q, f, version)
		}
	}
	return r.State(ctx, q, Any, 0)
}

// latest is State for [Latest]. What there is to race against is the proof alone: as
// long as the cluster has not said which version it is at it has enough to do, and
// would not be quicker to list.
func (r *Reader) latest(ctx context.Context, q *Query, f *feed) (*State, error) {
	var version uint64
	if err := f.during(ctx, func(ctx context.Context) (err error) {
		version, err = f.newestVersion(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	if f.version() >= version {
		return r.State(ctx, q, Any, 0)
	}
	return race(ctx, liveList, func(ctx context.Context) (*State, error) {
		if err := f.during(ctx, func(ctx context.Context) error { return f.reach(ctx, version) }); err != nil {
			return nil, err
		}
		return r.State(ctx, q, Any, 0)
	}, func(ctx context.Context) (*State, error) {
		return f.tryLive(func() (*State, error) { return r.liveState(ctx, q, f) })
	})
}

// few says that the query is about few objects of many, so that the cluster may
// be quicker to answer it than to prove that the mirror can.
func (f *feed) few(ctx context.Context, q *Query) bool {
	if q.ask.Continue != "" || q.ask.Verb != List || q.within != nil || q.nowhere() {
		return false
	}
	view := f.Engine().View()
	defer view.Release()
	if !view.Synced() || view.Len() <= liveObjects {
		return false
	}
	most := int64(liveObjects)
	if q.ask.Limit > 0 {
		most = min(most, q.ask.Limit)
	}
	found, err := q.collect(ctx, view, "", most+1)
	return err == nil && int64(len(found)) <= most
}

// liveState is the cluster's own answer.
func (r *Reader) liveState(ctx context.Context, q *Query, f *feed) (*State, error) {
	if !f.few(ctx, q) {
		return nil, errStopped
	}
	s := &State{query: q, live: []*Object{}}
	whole := *q
	whole.ask.Limit = 0
	meta, err := r.listLive(ctx, &whole, func(o *Object) error {
		if s.live = append(s.live, o); q.ask.Limit > 0 && int64(len(s.live)) > q.ask.Limit {
			return errStopped // there are pages now, which are the mirror's to give out
		}
		return nil
	})
	s.version = meta.ResourceVersion
	return s, err
}

// future waits for a version that the mirror has not come to.
func (f *feed) future(ctx context.Context, version uint64) error {
	limited, cancel := context.WithTimeoutCause(ctx, tooLargePatience, errWaited)
	defer cancel()
	for {
		has, err := f.asks.do(limited)
		if err == nil && has >= version {
			err = f.reach(limited, version)
		}
		if f.version() >= version {
			return nil
		}
		if err == nil { // the cluster does not have it yet
			grace, done := context.WithTimeout(limited, 10*watchGrace)
			_ = f.Engine().WaitFor(grace, decimal(version))
			done()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case limited.Err() != nil:
			return &TooLargeError{Want: version, Have: f.version()}
		case err != nil:
			return err
		}
	}
}

// past returns the state at a version that the mirror has come to.
func (r *Reader) past(ctx context.Context, q *Query, f *feed, version uint64) (*State, error) {
	s := &State{reader: r, query: q, caller: CallerOf(ctx), feed: f, version: decimal(version)}
	if s.page = r.pages.find(f, s.version, s.caller); s.page != nil {
		s.view = s.page.view
		return s, nil
	}
	var err error
	if q.nowhere() {
		s.live = []*Object{}
		return s, nil
	}
	if s.view, s.before, err = f.Engine().ViewBefore(s.version); err != nil {
		if why := context.Cause(f.Context()); why != nil {
			return nil, why
		}
		return nil, &mirror.Error{Reason: mirror.Expired, Err: err, Message: fmt.Sprintf("the state of %s at resourceVersion %s is not held", q, s.version)}
	}
	if f.Context().Err() != nil || !s.view.Synced() {
		s.view.Release()
		return nil, cmp.Or(context.Cause(f.Context()), error(errStale))
	}
	return s, nil
}

// List calls each for the objects of a list or of a page of one, ordered by
// namespace and name. Straight from the cluster, each is called as they arrive. An
// error from each ends the list and is returned as it is.
func (r *Reader) List(ctx context.Context, q *Query, each func(*Object) error) (ListMeta, error) {
	if q.ask.Source == Live {
		if err := q.offered(ctx); err != nil {
			return ListMeta{}, err
		}
		page := *q
		if q.ask.Continue != "" {
			t, err := q.unseal()
			if err == nil && t.Live == "" {
				err = errStale
			}
			if err != nil {
				return ListMeta{}, err
			}
			page.ask.Continue = t.Live
		}
		meta, err := r.listLive(ctx, &page, each)
		meta.Continue = q.liveToken(meta.Continue)
		return meta, err
	}
	match, version, after := Any, uint64(0), ""
	if q.ask.Continue != "" {
		var err error
		if match, version, after, err = q.Page(); err != nil {
			return ListMeta{}, err
		}
	}
	s, err := r.State(ctx, q, match, version)
	if err != nil {
		if q.ask.Continue != "" && mirror.ReasonOf(err) == mirror.Expired {
			err = errStale
		}
		return ListMeta{}, err
	}
	meta := ListMeta{ResourceVersion: s.version}
	limit := q.ask.Limit
	// The objects are collected before they are delivered, so that a slow caller does
	// not make the store keep what is superseded meanwhile. One more than a page holds
	// says that another page follows.
	found, err := s.List(ctx, after, limit+min(limit, 1))
	if err != nil {
		s.Release()
		return ListMeta{}, err
	}
	if limit > 0 && int64(len(found)) > limit {
		found = found[:limit]
		last := informer.Key(found[limit-1])
		meta.Continue = q.token(int64(object.Version(s.version)), last+"\x00", q.digest())
		if meta.Remaining = -1; q.Everything() {
			meta.Remaining = int64(s.Count(last, 0))
		}
		s.Hold()
	}
	s.Release()
	for _, o := range found {
		if err := each(o); err != nil {
			return meta, err
		}
	}
	return meta, nil
}

// Release ends the use of the state.
func (s *State) Release() {
	switch {
	case s.live != nil:
	case s.page != nil:
		s.reader.pages.done(s.page)
	default:
		s.view.Release()
	}
}

// Hold has the reader keep the state for some time, to be asked for by its version;
// see [Options.PageTTL]. A state that was put together from the log is not held: that
// is there for a while by itself.
func (s *State) Hold() {
	if s.live != nil || s.page != nil || len(s.before) > 0 {
		return
	}
	if s.page = s.reader.pages.hold(s.feed, s.view, s.version, s.caller); s.page != nil {
		s.view = s.page.view
		return
	}
	s.view, s.before = s.feed.Engine().View(), nil // the informer has ended
}

// Identity says what a state holds: of states with the same one, the objects are
// the same, while their versions may differ if nothing has happened between them.
type Identity struct{ informer, generation uint64 }

// Identity of the state. There is none, and ok is false, for a state that was put
// together for one reader.
func (s *State) Identity() (id Identity, ok bool) {
	if s.live != nil || len(s.before) > 0 {
		return Identity{}, false
	}
	return Identity{s.feed.ID(), s.view.Generation()}, true
}

// ResourceVersion of the state.
func (s *State) ResourceVersion() string { return s.version }

// Get returns one object, whatever the query selects.
func (s *State) Get(namespace, name string) (*Object, bool) {
	if then, changed := s.before[object.Key(namespace, name)]; changed {
		return then, then != nil
	}
	return s.view.Get(namespace, name)
}

// List returns the objects that the query selects behind the one with the key after,
// in the order of keys; with a limit no more than that. The error is the context's.
func (s *State) List(ctx context.Context, after string, limit int64) ([]*Object, error) {
	switch {
	case s.live != nil:
		return s.live, nil
	case len(s.before) == 0:
		found, err := s.query.collect(ctx, s.view, after, limit)
		if err == nil {
			s.feed.Engine().IndexFor(informer.Query{Labels: s.query.ask.Labels}, len(found) > 0)
		}
		return found, err
	}
	found := s.merge(after, func(o *Object) bool { return s.query.matches(o, &s.feed.selectors) })
	if limit > 0 && int64(len(found)) > limit {
		found = found[:limit]
	}
	return found, context.Cause(ctx)
}

// Count is the number of objects in the query's namespaces behind a key, selected or
// not; it does not count beyond most, if that is not 0.
func (s *State) Count(after string, most int) int {
	switch {
	case s.live != nil:
		return 0
	case len(s.before) == 0:
		return s.query.count(s.view, after, most)
	}
	namespace := s.query.Namespace()
	return len(s.merge(after, func(o *Object) bool {
		return (namespace == "" || o.GetNamespace() == namespace) && s.query.among(o.GetNamespace())
	}))
}

// merge is what of a state that is put together from the log belongs to it.
func (s *State) merge(after string, belongs func(*Object) bool) []*Object {
	changed := slices.Sorted(maps.Keys(s.before))
	var found []*Object
	take := func(o *Object) {
		if o != nil && informer.Key(o) > after && belongs(o) {
			found = append(found, o)
		}
	}
	for o := range s.view.All(informer.Query{Namespace: s.query.Namespace()}) {
		key := informer.Key(o)
		for len(changed) > 0 && changed[0] < key {
			take(s.before[changed[0]])
			changed = changed[1:]
		}
		if len(changed) > 0 && changed[0] == key {
			o, changed = s.before[key], changed[1:]
		}
		take(o)
	}
	for _, key := range changed {
		take(s.before[key])
	}
	return found
}

func decimal(version uint64) string { return strconv.FormatUint(version, 10) }
