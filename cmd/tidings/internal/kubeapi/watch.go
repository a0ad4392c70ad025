package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/codec"
)

// watch answers with a watch.
func (c *call) watch() error {
	options := c.list
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
	match := read.Exact // the changes after the version
	switch {
	case initial && options.ResourceVersion == "":
		match = read.Latest
	case initial && version == 0:
		match = read.Any
	case initial:
		match = read.NotOlderThan
	}
	timeout := watchTimeout()
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds != 0 {
		timeout = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	changes, err := c.reader.Changes(ctx, c.q, match, version)
	if err != nil && (mirror.ReasonOf(err) != mirror.Expired && !isTooLarge(err) || c.r.Context().Err() != nil) {
		return err
	}
	w := &watch{call: c, bookmarks: options.AllowWatchBookmarks, last: version, cancel: cancel}
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
		// As in kube-apiserver, the error of a version is an event in the stream.
		w.fail(err)
		return nil
	}
	if timeout < 0 {
		return nil // as in kube-apiserver
	}
	defer time.AfterFunc(timeout, cancel).Stop()
	if w.form.content == table {
		w.tables = w.newTable()
	}
	if w.bookmarks {
		defer w.sendBookmarks(time.Now().Add(timeout))()
	}
	for e, err := range changes {
		switch {
		case errors.Is(err, read.ErrTooSlow):
			w.tooSlow()
			return nil
		case mirror.ReasonOf(err) == mirror.Expired:
			w.fail(err)
			return nil
		case err != nil:
			return nil // the client resumes at its last version
		case !w.event(e):
			return nil
		}
	}
	// A watch that ends because its caller may no longer read sends the reason.
	var why apierrors.APIStatus
	if errors.As(context.Cause(c.r.Context()), &why) {
		w.fail(context.Cause(c.r.Context()))
	}
	return nil
}

// watch is one watch.
type watch struct {
	*call
	out       *stream
	cancel    context.CancelFunc
	bookmarks bool
	sent      bool // an event has been sent

	tables      *tableMaker // nil: no Tables are asked for
	columnsSent bool        // the columns of Tables have been sent; guarded by out.mu

	last uint64 // everything up to this resourceVersion has been delivered
}

// event sends an event. It returns false when the watch has ended.
func (w *watch) event(e read.Event) bool {
	switch e.Type {
	case read.Added, read.Modified, read.Deleted:
		if e.As != "" {
			w.sendAs(string(e.Type), e.Object, e.As)
		} else {
			w.sendObject(string(e.Type), e.Object)
		}
	}
	if version, err := strconv.ParseUint(e.ResumePoint, 10, 64); err == nil {
		w.out.mu.Lock()
		w.last = max(w.last, version)
		w.out.mu.Unlock()
	}
	if e.Type == read.Synced && w.bookmarks && !w.params.Legacy {
		w.bookmark(true) // a legacy watch has none after its initial objects
	}
	return w.out.alive()
}

// tooSlow ends a watch whose backlog was folded to the newest event of each object. Such
// events must not be sent: a client that stops among them and resumes at the version of
// its last event would miss a change that was folded into a later event. It would keep an
// object that no longer matches, or get a change of an object that it does not have. A
// single folded event that stands for all others can be sent.
//
// As with the API server, the client resumes at its last version if it got an event, or
// lists again.
func (w *watch) tooSlow() {
	w.tooSlowWatches.Add(1)
	if !w.sent {
		w.fail(&mirror.Error{Reason: mirror.Expired, Message: fmt.Sprintf("too many changes since resource version %d to be sent one by one", w.last)})
	}
}

// sendAs sends an event about an object with another resourceVersion.
func (w *watch) sendAs(event string, o *read.Object, version string) {
	copied, err := codec.WithVersion(o, version)
	if err != nil {
		w.fail(err)
		return
	}
	if w.tables != nil {
		w.sendTable(event, copied)
		return
	}
	frame, err := w.frame(event, copied)
	w.send(frame, err)
}

// sendTable sends an event about an object as a Table.
func (w *watch) sendTable(event string, o *read.Object) {
	err := func() error {
		w.out.mu.Lock()
		defer w.out.mu.Unlock()
		frame, err := w.tableFrame(event, o)
		if err == nil {
			w.sent = true
			w.out.add(frame)
		}
		return err
	}()
	if err != nil {
		w.fail(err)
	}
}

// sendObject sends an event about an object.
func (w *watch) sendObject(event string, o *read.Object) {
	if w.tables != nil {
		w.sendTable(event, o)
		return
	}
	v := w.form.variant(w.kind)
	v.frame = event[0]
	frame, err := w.cache.bytes(encodingKey{o, v}, func() ([]byte, error) { return w.frame(event, o) })
	w.send(frame, err)
}

func (w *watch) send(frame []byte, err error) {
	if err != nil {
		w.fail(err)
		return
	}
	w.sent = true
	w.out.send(frame)
}

// fail sends an error and ends the watch.
func (w *watch) fail(err error) {
	if frame, failed := w.statusFrame(w.statusOf(err)); failed == nil {
		w.out.send(frame)
	}
	w.out.end()
	w.cancel()
}

// sendBookmarks sends bookmarks at intervals, and one shortly before the watch ends, until
// stop is called.
func (w *watch) sendBookmarks(deadline time.Time) (stop func()) {
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
		if w.out.alive() { // also waits until timer is set
			w.bookmark(false)
			timer.Reset(next())
		}
	})
	return func() { timer.Stop() }
}

// bookmark sends a bookmark with the last version. initialEnd marks the end of the initial
// objects.
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
	var tooLarge *read.TooLargeError
	return errors.As(err, &tooLarge)
}
