package kubeapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/mirror"
)

// watch answers with what happens.
func (c *call) watch(options *internalversion.ListOptions) error {
	version, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return plainStatus(http.StatusInternalServerError, "", err.Error())
	}
	if err := c.tableOptions(); err != nil {
		return err
	}
	if _, err := negotiation.NegotiateOutputMediaTypeStream(c.r, scheme.Codecs, restrictions{c.kind}); err != nil {
		return err
	}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	match := mirror.Exact // the changes behind the version
	switch {
	case initial && options.ResourceVersion == "":
		match = mirror.Latest
	case initial && version == 0:
		match = mirror.Any
	case initial:
		match = mirror.NotOlderThan
	}
	timeout := watchTimeout()
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds > 0 {
		timeout = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	changes, err := c.mirror.Changes(ctx, c.q, match, version)
	if err != nil && (mirror.ReasonOf(err) != mirror.Expired && !isTooLarge(err) || c.r.Context().Err() != nil) {
		return err
	}
	w := &watch{call: c, initial: initial, bookmarks: options.AllowWatchBookmarks, last: version, cancel: cancel}
	if initial {
		w.last = 0
	}
	c.streams.Add(1)
	defer c.streams.Add(-1)
	out, end, begun := c.stream(cancel)
	if begun != nil {
		return begun
	}
	defer end()
	w.out = out
	if err != nil {
		// As in kube-apiserver: what is wrong with a version shows in the stream.
		w.fail(err)
		return nil
	}
	defer time.AfterFunc(timeout, cancel).Stop()
	if w.bookmarks {
		defer w.mark(time.Now().Add(timeout))()
	}
	for e := range changes.Events {
		if !w.event(e) {
			return nil
		}
	}
	return nil
}

// watch is one watch.
type watch struct {
	*call
	out       *stream
	cancel    context.CancelFunc
	initial   bool // everything there is, is being told
	bookmarks bool
	headed    bool // the columns of tables have been told
	told      bool // something has been

	last uint64 // resourceVersion of what was told last
	// held are changes that mean something only together: what a list has
	// brought to light.
	held []informer.Event[*mirror.Object]
}

// event tells an event of the informer. It returns false when there is no more
// to do.
func (w *watch) event(e informer.Event[*mirror.Object]) bool {
	switch {
	case e.Type == informer.Synced:
		w.initial = false
		w.advance(e)
		if w.bookmarks && !w.oldPath {
			w.bookmark(true)
		}
	case w.initial:
		if e.Object != nil && w.q.Matches(e.Object) {
			w.tell("ADDED", e.Object)
		}
	case e.Folded && (!e.Resumable || len(w.held) > 0):
		w.tooSlow()
		return false
	case !e.Resumable:
		w.held = append(w.held, e)
	case len(w.held) > 0:
		if e.Type != informer.Bookmark {
			w.held = append(w.held, e)
		}
		w.together()
		w.advance(e)
	case e.Type == informer.Bookmark:
		w.advance(e)
	default:
		w.change(e, 0)
		w.advance(e)
	}
	return w.out.alive()
}

// tooSlow says why a watch ends of which more waits than may: that has been folded
// to the newest of each object. Told of that, a client that stops in the middle and goes on
// from the version of the last event it got would never hear of a change before it
// that was folded into one behind it: it would keep an object that has left its
// selection, or be told that something has changed that it does not know. A single
// event that stands for all the others is as good as they are.
//
// As at the API server the client goes on at the version it has come to, if there is
// one, or lists anew.
func (w *watch) tooSlow() {
	w.tooSlowWatches.Add(1)
	if !w.told {
		w.fail(&mirror.Error{Reason: mirror.Expired, Message: fmt.Sprintf("too many changes since resource version %d to be told one by one", w.last)})
	}
}

// advance notes that everything up to an event's version has been told.
func (w *watch) advance(e informer.Event[*mirror.Object]) {
	version := object.Version(e.ResourceVersion())
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	w.last = max(w.last, version)
}

// together tells what is held in an order in which a client may stop anywhere
// and go on from the version of the last event it got: by the objects' versions,
// and then the deletions, whose versions are not known and which take that of the
// event before.
func (w *watch) together() {
	held := w.held
	w.held = nil
	version := func(e informer.Event[*mirror.Object]) uint64 {
		if e.Tombstone {
			return ^uint64(0)
		}
		return object.Version(e.Object.GetResourceVersion())
	}
	replaced := map[string]bool{}
	for _, e := range held {
		if e.Type != informer.Deleted {
			replaced[informer.Key(e.Object)] = true
		}
	}
	slices.SortStableFunc(held, func(a, b informer.Event[*mirror.Object]) int {
		va, vb := version(a), version(b)
		switch {
		case va < vb:
			return -1
		case va > vb:
			return 1
		}
		return 0
	})
	last := w.last
	gone := map[string]informer.Event[*mirror.Object]{}
	for _, e := range held {
		if key := informer.Key(e.Object); e.Tombstone && replaced[key] {
			gone[key] = e
		}
	}
	for _, e := range held {
		key := informer.Key(e.Object)
		if e.Tombstone {
			if !replaced[key] {
				w.change(e, last)
			}
			continue
		}
		if old, ok := gone[key]; ok { // another object has taken the name
			w.change(old, last)
			delete(gone, key)
		}
		w.change(e, 0)
		last = max(last, object.Version(e.Object.GetResourceVersion()))
	}
}

// change tells a change, if the query is about it; a deletion that was not seen
// with the version given.
func (w *watch) change(e informer.Event[*mirror.Object], unseen uint64) {
	switch e.Type {
	case informer.Added:
		if w.q.Matches(e.Object) {
			w.tell("ADDED", e.Object)
		}
	case informer.Updated:
		was, is := e.Old != nil && w.q.Matches(e.Old), w.q.Matches(e.Object)
		switch {
		case was && is:
			w.tell("MODIFIED", e.Object)
		case is:
			w.tell("ADDED", e.Object)
		case was:
			w.tellAs("DELETED", e.Old, e.Object.GetResourceVersion())
		}
	case informer.Deleted:
		last := e.Old
		if last == nil {
			last = e.Object
		}
		switch {
		case !w.q.Matches(last):
		case e.Tombstone && unseen > 0:
			w.tellAs("DELETED", e.Object, strconv.FormatUint(unseen, 10))
		default:
			w.tell("DELETED", e.Object)
		}
	}
}

// tellAs tells an object with another resourceVersion than its own.
func (w *watch) tellAs(event string, o *mirror.Object, version string) {
	copied, err := codec.WithVersion(o, version)
	if err != nil {
		w.fail(err)
		return
	}
	frame, err := w.frame(event, copied)
	w.send(frame, err)
}

// tell sends an event about an object.
func (w *watch) tell(event string, o *mirror.Object) {
	if w.form.content == table {
		frame, err := w.tableFrame(event, []*mirror.Object{o})
		w.send(frame, err)
		return
	}
	v := variant{frame: event[0], media: w.form.media, content: w.form.content, custom: w.kind.custom}
	if w.form.content == metadata {
		v.version = w.form.convert.Version
	}
	frame, err := w.cache.get(key{o, v}, func() ([]byte, error) { return w.frame(event, o) })
	w.send(frame, err)
}

func (w *watch) send(frame []byte, err error) {
	if err != nil {
		w.fail(err)
		return
	}
	w.told = true
	w.out.send(frame)
}

// fail tells what is wrong and ends the watch.
func (w *watch) fail(err error) {
	if frame, failed := w.statusFrame(w.statusOf(err)); failed == nil {
		w.out.send(frame)
	}
	w.out.stop()
	w.cancel()
}

// mark sends bookmarks: every so often, and shortly before the watch ends. It
// returns what ends that.
func (w *watch) mark(deadline time.Time) (stop func()) {
	next := func() time.Duration {
		soon := time.Until(deadline) - 2*time.Second
		if soon > 0 && soon < w.opts.BookmarkEvery {
			return soon
		}
		return w.opts.BookmarkEvery
	}
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(next(), func() {
		if w.out.alive() { // which also waits until there is a timer
			w.bookmark(false)
			timer.Reset(next())
		}
	})
	return func() { timer.Stop() }
}

// bookmark tells how far the watch has come. Once everything there was has been
// told, that is worth a mark of its own.
func (w *watch) bookmark(initialEnd bool) {
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	if w.last == 0 {
		return
	}
	frame, err := w.bookmarkFrame(w.last, initialEnd)
	if err != nil {
		w.log.Error("cannot make a bookmark", "kind", w.kind.gvk.String(), "err", err)
		return
	}
	w.out.add(frame)
}

func isTooLarge(err error) bool {
	_, ok := err.(*mirror.TooLargeError)
	return ok
}
