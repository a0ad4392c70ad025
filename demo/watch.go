package demo

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

// openWatch is a watch's place in the history of its resource.
type openWatch struct {
	next uint64      // position of the first change that is not sent yet
	end  chan ending // how to end, once
}

// ending is how a watch is made to end.
type ending struct {
	abort  bool           // break the connection
	status *metav1.Status // say why, in an ERROR event
}

var errLagging = errors.New("the watch has fallen behind the history")

// open takes the initial state, if it is wanted, and the place to go on from
// in one step, so that nothing falls between them. rev is the revision of the
// state.
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
		rev = c.cluster.rev // sendInitialEvents=false: from about now
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

// news is what has happened since a watch last looked.
type news struct {
	changes []change
	all     bool   // there is no more for now
	rev     uint64 // with these changes the watch has seen everything up to here
	gone    bool   // there never will be more: the resource is removed
}

func (c *call) read(w *openWatch) (news, error) {
	const batch = 256
	c.cluster.mu.RLock()
	defer c.cluster.mu.RUnlock()
	r := c.res
	if w.next < r.base {
		return news{}, errLagging
	}
	// The log only ever grows at its end, so this part of it is safe to read
	// without the lock.
	changes := r.log[w.next-r.base:]
	if len(changes) > batch {
		changes = changes[:batch]
		return news{changes: changes, rev: changes[batch-1].now.rev}, nil
	}
	return news{changes: changes, all: true, rev: c.cluster.rev, gone: r.gone}, nil
}

// event is what a change means to somebody who only sees a selection: objects
// that enter it are added, those that leave it deleted.
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
		// The state that was last seen, under the revision of its leaving.
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
		// As from a kube-apiserver, the answer is 200, and the error an event.
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

// follow sends changes until something ends the watch.
func (c *call) follow(s *stream, ow *openWatch, sel selection, timeout time.Duration, bookmarks bool) {
	tick := time.NewTicker(c.cluster.opts.BookmarkInterval)
	defer tick.Stop()
	var deadline <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		deadline = timer.C
	}
	var due, last bool // a bookmark; the end, once everything so far is sent
	var end ending
	for s.err == nil {
		changed := c.res.changed.wait()
		got, err := c.read(ow)
		if err != nil {
			return // clients come back and are told how late they are
		}
		// What happens after a watch was broken is not told on it.
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

// CloseWatches ends the open watches of a resource, as a server does that
// shuts down: after what has happened so far, without an error. It returns
// how many there were.
func (c *Cluster) CloseWatches(gvr schema.GroupVersionResource) int {
	return c.endWatches(func(r *resource) bool { return r.gvr == gvr }, ending{})
}

// FailWatches ends the open watches of a resource with an ERROR event, for
// instance of errors.NewResourceExpired, after what has happened so far.
func (c *Cluster) FailWatches(gvr schema.GroupVersionResource, err apierrors.APIStatus) int {
	status := toStatus(&apierrors.StatusError{ErrStatus: err.Status()})
	return c.endWatches(func(r *resource) bool { return r.gvr == gvr }, ending{status: status})
}

// AbortWatches breaks the connections of the open watches of a resource at
// once.
func (c *Cluster) AbortWatches(gvr schema.GroupVersionResource) int {
	return c.endWatches(func(r *resource) bool { return r.gvr == gvr }, ending{abort: true})
}

// OpenWatches is the number of watches of a resource that are being served.
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
