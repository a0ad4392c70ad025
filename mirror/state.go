package mirror

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
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
	// [Options.Retain] keeps.
	Exact
)

// TooLargeError says that a resourceVersion is of the future.
type TooLargeError struct{ Want, Have uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Want, e.Have)
}

// State is one state of a resource. It must be released.
type State struct {
	query    Query // of the target, for errors
	keeper   *keeper
	view     *informer.View[*codec.Raw]
	snapshot *snapshot // that the view belongs to, if it is held
	version  string
	before   map[string]*Object // what was different at the version, by key; nil if it was not there
	live     []*Object          // what the cluster itself has answered the query with; then there is no view
}

// tooLargePatience is how long a version that the cluster does not have yet is
// waited for, as kube-apiserver does.
const tooLargePatience = 3 * time.Second

// State returns a state of the query's target that matches. The version is for
// [NotOlderThan] and [Exact]. Errors are [*Error]s, of reason [Expired] for what
// is too old, [*TooLargeError]s, or the context's.
func (m *Mirror) State(ctx context.Context, q Query, match Match, version uint64) (*State, error) {
	if match == Latest {
		return m.latestState(ctx, q)
	}
	return m.state(ctx, q, match, version)
}

// latestState is State for [Latest]. What there is to race against is the proof
// alone: as long as the cluster has not said which version it is at it has enough
// to do, and would not be quicker to list.
func (m *Mirror) latestState(ctx context.Context, q Query) (*State, error) {
	k, err := m.at(ctx, q, Any, 0)
	if err != nil {
		return nil, err
	}
	var version uint64
	if err := k.during(ctx, func(ctx context.Context) (err error) {
		version, err = k.newestVersion(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	if k.version() >= version {
		return m.state(ctx, q, Any, 0)
	}
	return race(ctx, liveList, func(ctx context.Context) (*State, error) {
		if err := k.during(ctx, func(ctx context.Context) error { return k.reach(ctx, version) }); err != nil {
			return nil, err
		}
		return m.state(ctx, q, Any, 0)
	}, func(ctx context.Context) (*State, error) {
		return tryLive(q.member, func() (*State, error) { return m.liveState(ctx, q) })
	}, (*State).Release)
}

// few says that the query is about few objects of many, so that the cluster may
// be quicker to answer it than to prove that the mirror can.
func (m *Mirror) few(q Query) bool {
	if q.Continue != "" {
		return false
	}
	k := q.member.held(q)
	if k == nil {
		return false
	}
	view := k.informer.View()
	defer view.Release()
	if !view.Synced() || view.Len() <= liveObjects {
		return false
	}
	most := int64(liveObjects)
	if q.Limit > 0 {
		most = min(most, q.Limit)
	}
	return int64(len(q.collect(view, "", most))) <= most
}

// liveState is the cluster's own answer.
func (m *Mirror) liveState(ctx context.Context, q Query) (*State, error) {
	if !m.few(q) {
		return nil, errStopped
	}
	s := &State{query: q, live: []*Object{}}
	limit := q.Limit
	q.Limit = 0
	meta, err := live{m}.List(ctx, q, func(o *Object) error {
		if s.live = append(s.live, o); limit > 0 && int64(len(s.live)) > limit {
			return errStopped // there are pages now, which are the mirror's to give out
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.version = meta.ResourceVersion
	return s, nil
}

func (m *Mirror) state(ctx context.Context, q Query, match Match, version uint64) (*State, error) {
	k, err := m.at(ctx, q, match, version)
	if err != nil {
		return nil, err
	}
	if match == Exact {
		return m.past(ctx, q, k, version)
	}
	k, view, err := cache{m}.pin(ctx, q)
	if err != nil {
		return nil, err
	}
	return &State{query: q, keeper: k, view: view, version: view.ResourceVersion()}, nil
}

// at returns the informer of the query's target once it has come to what is
// asked for.
func (m *Mirror) at(ctx context.Context, q Query, match Match, version uint64) (*keeper, error) {
	if err := q.offered(); err != nil {
		return nil, err
	}
	k, err := cache{m}.ready(ctx, q)
	if err != nil {
		return nil, err
	}
	if match == Any || match != Latest && k.version() >= version {
		return k, nil
	}
	return k, k.during(ctx, func(ctx context.Context) error {
		if match == Latest {
			return k.latest(ctx)
		}
		return k.future(ctx, version)
	})
}

// future waits for a version that the mirror has not come to.
func (k *keeper) future(ctx context.Context, version uint64) error {
	limited, cancel := context.WithTimeoutCause(ctx, tooLargePatience, errWaited)
	defer cancel()
	for {
		has, err := k.fresh.asks.do(limited)
		if err == nil && has >= version {
			err = k.reach(limited, version)
		}
		if k.version() >= version {
			return nil
		}
		if err == nil { // the cluster does not have it yet
			grace, done := context.WithTimeout(limited, 10*watchGrace)
			_ = k.informer.WaitFor(grace, decimal(version))
			done()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case limited.Err() != nil:
			return &TooLargeError{Want: version, Have: k.version()}
		case err != nil:
			return err
		}
	}
}

// past returns the state at a version that the mirror has come to.
func (m *Mirror) past(ctx context.Context, q Query, k *keeper, version uint64) (*State, error) {
	s := &State{query: q, keeper: k, version: decimal(version)}
	if s.snapshot = m.snapshots.at(k, s.version); s.snapshot != nil {
		s.view = s.snapshot.view
		return s, nil
	}
	var err error
	if s.view, s.before, err = k.informer.ViewBefore(s.version); err != nil {
		if why := context.Cause(k.ctx); why != nil {
			return nil, why
		}
		return nil, &Error{Reason: Expired, Err: err, Message: fmt.Sprintf("the state of %s at resourceVersion %s is not held", q.Target, s.version)}
	}
	if k.ctx.Err() != nil || !s.view.Synced() {
		s.view.Release()
		return nil, context.Cause(k.ctx)
	}
	return s, nil
}

// One returns one object of a state that matches, as for [Mirror.State], without
// [Exact].
func (m *Mirror) One(ctx context.Context, q Query, match Match, version uint64) (o *Object, err error) {
	if match == Latest {
		o, err = m.newest(ctx, q)
	} else {
		o, err = m.find(ctx, q, match, version)
	}
	if err == nil && o == nil {
		err = missing(q)
	}
	return o, err
}

// find returns the object of a query in a state that matches; nil if there is none.
func (m *Mirror) find(ctx context.Context, q Query, match Match, version uint64) (*Object, error) {
	s, err := m.state(ctx, q, match, version)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	o, _ := s.Get(q.Namespace, q.Name)
	return o, nil
}

// Release ends the use of the state.
func (s *State) Release() {
	if s.live != nil {
		return
	}
	if s.snapshot != nil {
		s.keeper.member.mirror.snapshots.done(s.snapshot)
		return
	}
	s.view.Release()
}

// Hold has the mirror keep the state for some time, to be asked for by its
// version; see [Options.PageTTL]. A state that was put together from the log is
// not held: that is there for a while by itself.
func (s *State) Hold() {
	if s.live != nil || s.snapshot != nil || len(s.before) > 0 {
		return
	}
	snapshots := s.keeper.member.mirror.snapshots
	view := s.view
	if id := snapshots.hold(s.keeper, view); id != 0 {
		if found := snapshots.find(id); found != nil {
			s.snapshot, s.view = found, found.view
			return
		}
	}
	s.view, s.before = s.keeper.informer.View(), nil
}

// Identity says what a state holds: of states with the same one, the objects are
// the same, while their versions may differ if nothing has happened between them.
type Identity struct{ keeper, generation uint64 }

// Identity of the state. There is none, and ok is false, for a state that was put
// together for one reader.
func (s *State) Identity() (id Identity, ok bool) {
	if s.live != nil || len(s.before) > 0 {
		return Identity{}, false
	}
	return Identity{s.keeper.id, s.view.Generation()}, true
}

// ResourceVersion of the state.
func (s *State) ResourceVersion() string { return s.version }

// Get returns one object.
func (s *State) Get(namespace, name string) (*Object, bool) {
	if then, changed := s.before[object.Key(namespace, name)]; changed {
		return then, then != nil
	}
	return s.view.Get(namespace, name)
}

// List returns the objects that match the query, by its namespace and selectors,
// behind the one with the key after, in the order of keys; with a limit no more
// than that, and more says whether there is any object left behind the last of
// them, matching or not, as kube-apiserver has it.
func (s *State) List(q Query, after string, limit int64) (found []*Object, more bool) {
	if s.live != nil {
		return s.live, false
	}
	if len(s.before) > 0 {
		found = s.merge(q, after)
	} else {
		if q.Labels != nil && !q.Labels.Empty() {
			s.keeper.informer.List(informer.Query{Labels: q.Labels, After: afterAll}) // makes the indexes
		}
		found = q.collect(s.view, after, limit)
	}
	if limit <= 0 || int64(len(found)) < limit {
		return found, false
	}
	found = found[:limit]
	return found, s.Count(q.Namespace, informer.Key(found[limit-1]), 1) > 0
}

// merge is List of everything for a state put together from the log.
func (s *State) merge(q Query, after string) []*Object {
	changed := slices.Sorted(maps.Keys(s.before))
	var found []*Object
	take := func(o *Object) {
		if o != nil && informer.Key(o) > after && q.matches(o) {
			found = append(found, o)
		}
	}
	for o := range s.view.All(informer.Query{Namespace: q.Namespace}) {
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

// Count is the number of objects in a namespace, or in all, behind a key; it does
// not count beyond most, if that is not 0.
func (s *State) Count(namespace, after string, most int) int {
	if len(s.before) > 0 {
		return len(s.merge(Query{Namespace: namespace}, after))
	}
	if namespace == "" && after == "" {
		return s.view.Len()
	}
	n := 0
	for range s.view.All(informer.Query{Namespace: namespace, After: after, Limit: most}) {
		n++
	}
	return n
}

// Everything says that the query selects by no more than the namespace.
func (q *Query) Everything() bool { return !q.selective() }

// Upstream is how to reach the target's cluster, with the mirror's credentials.
func (t Target) Upstream() (*http.Client, *url.URL) {
	return t.member.cluster.HTTPClient(), t.member.cluster.BaseURL()
}

func decimal(version uint64) string { return strconv.FormatUint(version, 10) }
