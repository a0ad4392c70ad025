package fakeapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// openWatch is an open watch's position in the history of its resource.
type openWatch struct {
	next uint64      // position of the first change that is not sent yet
	end  chan ending // receives at most one ending
}

// ending is a request to end a watch.
type ending struct {
	abort  bool           // break the connection
	status *metav1.Status // send an ERROR event with it first
}

var errLagging = errors.New("the watch has fallen behind the history")

// open returns the initial state, if requested, and a watch that continues from
// it, in one step, so that no change is missed or doubled. rev is the revision of
// the state.
func (c *call) open(opts *internalversion.ListOptions, sel selection) (w *openWatch, initial []*record, rev uint64, err error) {
	rev, err = parseRevision(opts.ResourceVersion)
	if err != nil {
		return nil, nil, 0, err
	}
	fromState := rev == 0
	if opts.SendInitialEvents != nil {
		fromState = *opts.SendInitialEvents
	}
	if fromState {
		if err := c.cluster.waitFor(c.HTTP.Context(), rev); err != nil {
			return nil, nil, 0, err
		}
	}
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	r := c.res
	w = &openWatch{next: r.base + uint64(len(r.log)), end: make(chan ending, 1)}
	switch {
	case fromState:
		rev = c.cluster.rev
		initial = r.collect(rev, sel, "", 0).items
	case rev == 0:
		rev = c.cluster.rev // sendInitialEvents=false: from now on
	case rev < r.floor:
		return nil, nil, 0, errWatchTooOld(rev, r.floor)
	default:
		w.next = r.base + uint64(r.since(rev))
	}
	r.watches[w] = struct{}{}
	return w, initial, rev, nil
}

func (c *call) close(w *openWatch) {
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	delete(c.res.watches, w)
}

// batch is the next changes of a watch.
type batch struct {
	changes []change
	all     bool   // there are no more for now
	rev     uint64 // with these changes the watch is complete up to here
	gone    bool   // the resource has been removed: there will be no more
}

func (c *call) read(w *openWatch) (batch, error) {
	const limit = 256
	c.cluster.mu.RLock()
	defer c.cluster.mu.RUnlock()
	r := c.res
	if w.next < r.base {
		return batch{}, errLagging
	}
	// The log only grows at its end, so this part of it may be read without the
	// lock.
	changes := r.log[w.next-r.base:]
	if len(changes) > limit {
		changes = changes[:limit]
		return batch{changes: changes, rev: changes[limit-1].now.rev}, nil
	}
	return batch{changes: changes, all: true, rev: c.cluster.rev, gone: r.gone}, nil
}

// event converts a change to an event of a watch with this selection: an object
// that enters the selection is added, one that leaves it is deleted.
func (s selection) event(ch change) (kind watch.EventType, obj Object, ok bool) {
	is, was := ch.kind != watch.Deleted && s.matches(ch.now), s.matches(ch.prev)
	switch {
	case is && !was:
		return watch.Added, ch.now.obj, true
	case is:
		return watch.Modified, ch.now.obj, true
	case was && ch.kind == watch.Deleted:
		return watch.Deleted, ch.now.obj, true
	case was:
		// The last state in the selection, with the revision of the change.
		left := shallow(ch.prev.obj)
		left.SetResourceVersion(strconv.FormatUint(ch.now.rev, 10))
		return watch.Deleted, left, true
	}
	return "", nil, false
}

func (c *call) serveWatch(w http.ResponseWriter) error {
	f, err := negotiate(c.HTTP, shape{typed: c.res.typed, as: "PartialObjectMetadata", stream: true})
	if err != nil {
		return err
	}
	opts, sel, err := c.listOptions()
	if err != nil {
		return err
	}
	ow, initial, rev, err := c.open(opts, sel)
	if apierrors.IsBadRequest(err) {
		return err
	}
	s := newStream(w, f, c)
	if err != nil {
		// Like a kube-apiserver, respond with 200 and send the error as an event.
		s.sendStatus(toStatus(err))
		s.flush()
		return nil
	}
	defer c.close(ow)

	timeout := c.cluster.opts.WatchTimeout
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	bookmarks := opts.AllowWatchBookmarks && (c.fault == nil || !c.fault.NoBookmarks)
	initialEnd := opts.AllowWatchBookmarks && opts.SendInitialEvents != nil && *opts.SendInitialEvents &&
		(c.fault == nil || !c.fault.NoInitialEventsEnd)

	for _, rec := range initial {
		s.send(watch.Added, f.single(c.res, rec.obj))
	}
	if initialEnd {
		s.sendBookmark(rev, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	c.follow(s, ow, sel, timeout, bookmarks)
	return nil
}

// follow sends changes until the watch ends.
func (c *call) follow(s *stream, ow *openWatch, sel selection, timeout time.Duration, bookmarks bool) {
	tick := time.NewTicker(c.cluster.opts.BookmarkInterval)
	defer tick.Stop()
	var deadline <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		deadline = timer.C
	}
	var due, last bool // a bookmark is due; end after the changes so far
	var end ending
	for s.err == nil {
		changed := c.res.changed.Next()
		got, err := c.read(ow)
		if err != nil {
			return // the client resumes and gets 410
		}
		// A watch that was aborted sends no later changes.
		select {
		case end = <-ow.end:
			if end.abort {
				panic(http.ErrAbortHandler)
			}
			last = true
		default:
		}
		for _, ch := range got.changes {
			if kind, obj, ok := sel.event(ch); ok {
				s.send(kind, s.format.single(c.res, obj))
			}
		}
		ow.next += uint64(len(got.changes))
		if !got.all {
			continue
		}
		if due && bookmarks {
			s.sendBookmark(got.rev, nil)
		}
		due = false
		if end.status != nil {
			s.sendStatus(end.status)
		}
		s.flush()
		if last || got.gone {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
			due = true
		case <-deadline:
			due, last = true, true
		case end = <-ow.end:
			if end.abort {
				panic(http.ErrAbortHandler)
			}
			last = true
		case <-c.HTTP.Context().Done():
			return
		}
	}
}

// CloseWatches ends the open watches of a resource as a server that shuts down
// does: after all changes so far, without an error. It returns their number.
func (c *Cluster) CloseWatches(gvr schema.GroupVersionResource) int {
	return c.endWatches(func(r *resource) bool { return r.gvr == gvr }, ending{})
}

// FailWatches ends the open watches of a resource with an ERROR event, for
// instance of errors.NewResourceExpired, after all changes so far. It returns their
// number.
func (c *Cluster) FailWatches(gvr schema.GroupVersionResource, err apierrors.APIStatus) int {
	status := toStatus(&apierrors.StatusError{ErrStatus: err.Status()})
	return c.endWatches(func(r *resource) bool { return r.gvr == gvr }, ending{status: status})
}

// AbortWatches breaks the connections of the open watches of a resource at once. It
// returns their number.
func (c *Cluster) AbortWatches(gvr schema.GroupVersionResource) int {
	return c.endWatches(func(r *resource) bool { return r.gvr == gvr }, ending{abort: true})
}

// OpenWatches returns the number of open watches of a resource.
func (c *Cluster) OpenWatches(gvr schema.GroupVersionResource) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if r, ok := c.resources[gvr]; ok {
		return len(r.watches)
	}
	return 0
}

func (c *Cluster) endWatches(which func(*resource) bool, how ending) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := 0
	for _, r := range c.resources {
		if !which(r) {
			continue
		}
		for w := range r.watches {
			select {
			case w.end <- how:
				n++
			default: // it is ending already
			}
		}
	}
	return n
}
