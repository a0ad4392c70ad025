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

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// watch answers with what happens.
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
	match := read.Exact // the changes behind the version
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
		// As in kube-apiserver: what is wrong with a version shows in the stream.
		w.fail(err)
		return nil
	}
	if timeout < 0 {
		return nil // as kube-apiserver takes it
	}
	defer time.AfterFunc(timeout, cancel).Stop()
	if w.form.content == table {
		w.tables = w.newTable()
	}
	if w.bookmarks {
		defer w.mark(time.Now().Add(timeout))()
	}
	for e, err := range changes {
		switch {
		case errors.Is(err, read.ErrTooSlow):
			w.tooSlow()
			return nil
		case err != nil:
			return nil // a client goes on at the version it has come to
		case !w.event(e):
			return nil
		}
	}
	// A watch that ends because its caller may no longer read says so.
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
	told      bool // an event has been sent

	tables *tableMaker // nil: no Tables are asked for
	headed bool        // the columns of Tables have been sent; guarded by out.mu

	last uint64 // resourceVersion that everything has been delivered up to
}

// event sends an event. It returns false when there is no more to do.
func (w *watch) event(e read.Event) bool {
	switch e.Type {
	case read.Added, read.Modified, read.Deleted:
		if e.As != "" {
			w.sendAs(string(e.Type), e.Object, e.As)
		} else {
			w.sendObject(string(e.Type), e.Object)
		}
	}
	if version, err := strconv.ParseUint(e.Position, 10, 64); err == nil {
		w.out.mu.Lock()
		w.last = max(w.last, version)
		w.out.mu.Unlock()
	}
	if e.Type == read.Synced && w.bookmarks && !w.ask.Legacy {
		w.bookmark(true) // there is none behind what there is in a watch of the older form
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

// sendAs sends an object with another resourceVersion than its own.
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

// sendTable sends an event about an object that is shown in a Table.
func (w *watch) sendTable(event string, o *read.Object) {
	err := func() error {
		w.out.mu.Lock()
		defer w.out.mu.Unlock()
		frame, err := w.tableFrame(event, o)
		if err == nil {
			w.told = true
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
	var tooLarge *read.TooLargeError
	return errors.As(err, &tooLarge)
}
