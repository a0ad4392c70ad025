package read

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// Match says which states of a resource satisfy a read, with the semantics of the
// Kubernetes API (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
type Match uint8

const (
	// Any is the state that the mirror has.
	Any Match = iota
	// Latest is a state not older than the cluster at the time of the request.
	Latest
	// NotOlderThan is a state at a given resourceVersion or later.
	NotOlderThan
	// Exact is the state at a given resourceVersion. The mirror has it for as long as
	// it is kept for the pages of a list, or within the changes that
	// [mirror.Options.Retain] keeps.
	Exact
)

// TooLargeError says that the cluster has not reached a resourceVersion.
type TooLargeError struct{ Want, Have uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Want, e.Have)
}

// ListMeta is the metadata of a list.
type ListMeta struct {
	// ResourceVersion of the list. A watch may begin there.
	ResourceVersion string
	// Continue is the token of the next page, empty on the last one.
	Continue string
	// Remaining is the number of objects after this page, -1 if unknown.
	Remaining int64
	// Past says which moment the list shows; nil for the present.
	Past *Past
}

// State is a state of a resource, as selected by a query. It must be released.
type State struct {
	reader  *Reader
	query   *Query
	caller  string
	feed    *feed
	view    *informer.View[*codec.Raw]
	page    *page // owns the view, if not nil
	version string
	before  map[string]*Object // the objects that differed from the view at the version, by key; nil: absent
	live    []*Object          // the objects from the API server; then there is no view
	past    *history.State     // the state in the history; then there is no view
}

// tooLargePatience is how long a read waits for a version that the cluster has not
// reached, as in kube-apiserver.
const tooLargePatience = 3 * time.Second

// State returns a state of the query's resource that matches. The version is for
// [NotOlderThan] and [Exact]. Errors are [*mirror.Error]s, of reason Expired if the
// version is too old, [*TooLargeError]s, or the context's.
func (r *Reader) State(ctx context.Context, q *Query, match Match, version uint64) (*State, error) {
	if q.params.At != nil {
		return nil, mirror.Invalidf("a moment in the past can only be got or listed")
	}
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

// latest is State for [Latest]. Only the proof of freshness is raced against a live
// list: while the cluster has not yet answered which version it is at, it is busy, and
// a list would not be quicker.
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
	if f.Cluster().Origin() != nil {
		if err := f.during(ctx, func(ctx context.Context) error { return f.reach(ctx, version) }); err != nil {
			return nil, err
		}
		return r.State(ctx, q, Any, 0)
	}
	return race(ctx, liveListDelay, func(ctx context.Context) (*State, error) {
		if err := f.during(ctx, func(ctx context.Context) error { return f.reach(ctx, version) }); err != nil {
			return nil, err
		}
		return r.State(ctx, q, Any, 0)
	}, func(ctx context.Context) (*State, error) {
		return f.tryLive(func() (*State, error) { return r.liveState(ctx, q, f) })
	})
}

// few reports whether the query selects few objects of many. Then a live list may be
// quicker than the proof that the mirror is fresh.
func (f *feed) few(ctx context.Context, q *Query) bool {
	if q.params.Continue != "" || q.params.Verb != List || q.within != nil || q.invalidNamespace() {
		return false
	}
	view := f.Engine().View()
	defer view.Release()
	if !view.Synced() || view.Len() <= maxLiveObjects {
		return false
	}
	most := int64(maxLiveObjects)
	if q.params.Limit > 0 {
		most = min(most, q.params.Limit)
	}
	found, err := q.collect(ctx, view, "", most+1)
	return err == nil && int64(len(found)) <= most
}

// liveState returns a state from a live list.
func (r *Reader) liveState(ctx context.Context, q *Query, f *feed) (*State, error) {
	if !f.few(ctx, q) {
		return nil, errStopped
	}
	s := &State{query: q, live: []*Object{}}
	whole := *q
	whole.params.Limit = 0
	meta, err := r.listLive(ctx, &whole, func(o *Object) error {
		if s.live = append(s.live, o); q.params.Limit > 0 && int64(len(s.live)) > q.params.Limit {
			return errStopped // the list needs pages, which only the mirror can provide
		}
		return nil
	})
	s.version = meta.ResourceVersion
	return s, err
}

// future waits for a version that the mirror has not reached.
func (f *feed) future(ctx context.Context, version uint64) error {
	limited, cancel := context.WithTimeoutCause(ctx, tooLargePatience, errTimeout)
	defer cancel()
	for {
		has, err := f.latest.do(limited)
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

// past returns the state at a version that the mirror has reached.
func (r *Reader) past(ctx context.Context, q *Query, f *feed, version uint64) (*State, error) {
	s := &State{reader: r, query: q, caller: CallerOf(ctx), feed: f, version: decimal(version)}
	if s.page = r.pages.find(f, s.version, s.caller); s.page != nil {
		s.view = s.page.view
		return s, nil
	}
	var err error
	if q.invalidNamespace() {
		s.live = []*Object{}
		return s, nil
	}
	if s.view, s.before, err = f.Internals().ViewBefore(s.version); err != nil {
		if why := context.Cause(f.Context()); why != nil {
			return nil, why
		}
		if s.past = r.exactPast(ctx, q, version); s.past != nil {
			return s, nil
		}
		return nil, &mirror.Error{Reason: mirror.Expired, Err: err, Message: fmt.Sprintf("the state of %s at resourceVersion %s is not kept", q, s.version)}
	}
	if f.Context().Err() != nil || !s.view.Synced() {
		s.view.Release()
		return nil, cmp.Or(context.Cause(f.Context()), error(errStale))
	}
	return s, nil
}

// List calls each for the objects of a list or of one of its pages, ordered by
// namespace and name. In a live list, each is called as the objects arrive. An error
// from each ends the list and is returned unchanged.
func (r *Reader) List(ctx context.Context, q *Query, each func(*Object) error) (ListMeta, error) {
	if q.params.Source == Live {
		if err := q.checkOffered(ctx); err != nil {
			return ListMeta{}, err
		}
		page := *q
		if q.params.Continue != "" {
			t, err := q.decodeToken()
			if err == nil && t.Live == "" {
				err = errStale
			}
			if err != nil {
				return ListMeta{}, err
			}
			page.params.Continue = t.Live
		}
		meta, err := r.listLive(ctx, &page, each)
		meta.Continue = q.liveToken(meta.Continue)
		return meta, err
	}
	if q.params.At != nil {
		return r.listPast(ctx, q, each)
	}
	match, version, after := Any, uint64(0), ""
	if q.params.Continue != "" {
		var err error
		if match, version, after, err = q.Page(); err != nil {
			return ListMeta{}, err
		}
	}
	s, err := r.State(ctx, q, match, version)
	if err != nil {
		if q.params.Continue != "" && mirror.ReasonOf(err) == mirror.Expired {
			err = errStale
		}
		return ListMeta{}, err
	}
	meta := ListMeta{ResourceVersion: s.version}
	limit := q.params.Limit
	// Collect the objects before each is called: a slow caller must not make the store
	// keep superseded versions. One object more than the page shows that another page
	// follows.
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
		s.Keep()
	}
	s.Release()
	for _, o := range found {
		if err := each(o); err != nil {
			return meta, err
		}
	}
	return meta, nil
}

// Release releases the state. It must not be used afterwards.
func (s *State) Release() {
	switch {
	case s.live != nil:
	case s.past != nil:
		_ = s.past.Close()
	case s.page != nil:
		s.reader.pages.done(s.page)
	default:
		s.view.Release()
	}
}

// Keep makes the reader keep the state for some time, so that it can be read again by
// its version; see [Options.PageTTL]. A state that was built from the log or the history
// is not kept: it can be built again.
func (s *State) Keep() {
	if s.live != nil || s.past != nil || s.page != nil || len(s.before) > 0 {
		return
	}
	if s.page = s.reader.pages.keep(s.feed, s.view, s.version, s.caller); s.page != nil {
		s.view = s.page.view
		return
	}
	s.view, s.before = s.feed.Engine().View(), nil // the informer has ended
}

// Identity identifies the content of a state. States with the same identity have the
// same objects. Their resourceVersions may differ, if nothing changed in between.
type Identity struct{ informer, generation uint64 }

// Identity returns the identity of the state. ok is false for a state that was built for
// one reader, which has none.
func (s *State) Identity() (id Identity, ok bool) {
	if s.live != nil || s.past != nil || len(s.before) > 0 {
		return Identity{}, false
	}
	return Identity{s.feed.ID(), s.feed.Internals().Generation(s.view)}, true
}

// ResourceVersion returns the resourceVersion of the state.
func (s *State) ResourceVersion() string { return s.version }

// Get returns one object, whether or not the query selects it.
func (s *State) Get(namespace, name string) (*Object, bool) {
	if s.past != nil {
		v, ok, err := s.past.Get(object.Key(namespace, name))
		if err != nil || !ok {
			return nil, false
		}
		o, err := s.query.decodePast(v)
		return o, err == nil
	}
	if then, changed := s.before[object.Key(namespace, name)]; changed {
		return then, then != nil
	}
	return s.view.Get(namespace, name)
}

// Owned returns the selected objects that name an owner with the given uid, at most limit
// of them. It is for states that were read with [Any] from the cache.
func (s *State) Owned(ctx context.Context, owner types.UID, limit int) ([]*Object, error) {
	selected, possible := s.query.selection()
	if !possible || s.view == nil {
		return nil, nil
	}
	selected.Owner = owner
	var found []*Object
	for o := range s.view.All(selected) {
		if !s.query.matches(o, &s.feed.selectors) {
			continue
		}
		if found = append(found, o); len(found) == limit {
			break
		}
	}
	return found, context.Cause(ctx)
}

// List returns the selected objects whose keys are after a key, in the order of keys,
// and at most limit of them if limit is not 0. The error is the context's.
func (s *State) List(ctx context.Context, after string, limit int64) ([]*Object, error) {
	switch {
	case s.live != nil:
		return s.live, nil
	case s.past != nil:
		return s.query.collectPast(ctx, s.past, after, limit)
	case len(s.before) == 0:
		found, err := s.query.collect(ctx, s.view, after, limit)
		if err == nil {
			s.feed.Internals().IndexLabels(s.query.params.Labels, len(found) > 0)
		}
		return found, err
	}
	found := s.merge(after, func(o *Object) bool { return s.query.matches(o, &s.feed.selectors) })
	if limit > 0 && int64(len(found)) > limit {
		found = found[:limit]
	}
	return found, context.Cause(ctx)
}

// Count counts the objects in the query's namespaces after a key, selected or not, up
// to limit if limit is not 0.
func (s *State) Count(after string, limit int) int {
	switch {
	case s.live != nil:
		return 0
	case s.past != nil:
		n := 0
		for v, err := range s.past.All(s.query.Namespace(), after) {
			if err != nil || n == limit && limit > 0 {
				break
			}
			if namespace, _, _ := strings.Cut(v.Key, "/"); s.query.includes(namespace) {
				n++
			}
		}
		return n
	case len(s.before) == 0:
		return s.query.count(s.view, after, limit)
	}
	namespace := s.query.Namespace()
	return len(s.merge(after, func(o *Object) bool {
		return (namespace == "" || o.GetNamespace() == namespace) && s.query.includes(o.GetNamespace())
	}))
}

// merge returns the objects after a key of a state that was built from the log, if
// belongs accepts them.
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
