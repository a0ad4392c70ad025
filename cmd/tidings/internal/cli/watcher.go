package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/informer"
)

// watcher prints the events of informers.
type watcher struct {
	g         *globals
	format    eventFormat
	needsAll  bool      // the format needs whole objects, not only metadata
	many      bool      // there are several clusters: print their names
	since     string    // start after this version or time, without an initial list
	begin     time.Time // that time; zero: it is a version
	once      bool      // end with the initial list
	watchOnly bool      // leave out the initial list
	what      string    // for the progress line

	showsLabels, showsDiff bool // the format needs labels, or the state before

	mu    sync.Mutex
	parts []*part
	found bool // an object was listed
	// last has the newest state of the objects of the past, with showsDiff.
	last map[types.UID]*unstructured.Unstructured
}

// anyInformer is an informer of any type.
type anyInformer interface {
	Status() informer.Status
	StatusChanged() <-chan struct{}
}

// errDone ends follow with --once.
var errDone = errors.New("done")

// follow follows one resource with an informer of T. With once it waits for
// before to be closed, prints the list, and closes after.
func follow[T informer.Object](ctx context.Context, f *watcher, p *part, o target, before <-chan struct{}, after chan<- struct{}) error {
	defer close(after)
	opts := []informer.Option{
		informer.Resource(o.resource.Versioned()), informer.InNamespace(o.namespace),
		informer.LabelSelector(f.g.selector), informer.FieldSelector(o.fieldSelector(f.g.fieldSelector)),
		informer.Logger(f.g.log),
	}
	if o.from != "" {
		opts = append(opts, informer.From(o.from))
	}
	inf, err := informer.New[T](o.cluster, opts...)
	if err != nil {
		return err
	}
	f.mu.Lock()
	p.lists = append(p.lists, inf)
	f.mu.Unlock()

	ctx, stop := context.WithCancelCause(ctx)
	// A handler added before the informer starts gets every event. Added later, it
	// would begin with the current state, which with --since is not the same.
	events := make(chan informer.Event[T])
	inf.AddHandler(informer.HandlerFunc[T](func(e informer.Event[T]) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}))
	var parts errgroup.Group
	parts.Go(func() error {
		err := inf.Run(ctx)
		stop(err) // if refused, there will be no events
		return err
	})
	parts.Go(func() error { stop(f.reportStatus(ctx, inf, o)); return nil })
	if f.once {
		select {
		case <-before:
		case <-ctx.Done():
		}
	}
	var printed error
	first := o.from == "" // up to Synced; later lists bring new events
	listed := false
	for printed == nil && ctx.Err() == nil {
		select {
		case e := <-events:
			if first && e.Type == informer.Synced {
				f.firstList(ctx, p, o, !listed)
			}
			listed = true
			printed = printEvent(f, o, e, first)
			first = first && e.Type != informer.Synced
		case <-ctx.Done():
		}
	}
	stop(nil)
	err = parts.Wait()
	switch {
	case errors.Is(printed, errDone):
		return nil
	case printed != nil:
		return printed
	}
	return err
}

// printEvent prints an event. first reports whether it comes before the first
// Synced. It returns errDone after the last event to print.
func printEvent[T informer.Object](f *watcher, o target, e informer.Event[T], first bool) error {
	switch e.Type {
	case informer.Added, informer.Updated, informer.Deleted:
		listed := first && e.InInitialList
		if listed && f.watchOnly {
			return nil
		}
		out := event{kind: o.resource.Kind, change: e.Type.String(), meta: any(e.Object).(metav1.Object)}
		if !listed {
			out.time = time.Now()
		}
		if f.many {
			out.cluster = o.cluster.Name()
		}
		out.object, _ = any(e.Object).(*unstructured.Unstructured)
		out.old, _ = any(e.Old).(*unstructured.Unstructured)
		if out.old == nil {
			out.old = f.lastOf(out.meta.GetUID())
		}
		var failed error
		// The first list is written in large pieces, later events at once.
		return errors.Join(f.g.screen.print(!listed, func(w io.Writer) { failed = f.format(w, out) }), failed)
	case informer.Synced:
		if err := f.g.screen.flush(); err != nil || !f.once {
			return err
		}
		return errDone
	}
	return nil
}

// reportStatus prints to stderr what a reader of the events has to know: errors,
// and that events may be missing because of a new list. It returns an error if the
// first request has failed and it is of no use to repeat it.
func (f *watcher) reportStatus(ctx context.Context, inf anyInformer, o target) error {
	tick := time.NewTicker(time.Second) // StatusChanged does not report a new number of lists
	defer tick.Stop()
	var last informer.Status
	for {
		changed := inf.StatusChanged()
		now := inf.Status()
		if now.Lists+now.Watches == 0 && useless(now.LastError) {
			return now.LastError
		}
		if wait := time.Until(now.Retry).Round(time.Second / 10); now.Errors > last.Errors && wait > 0 {
			switch now.Phase {
			case informer.Waiting, informer.Denied, informer.Gone:
				f.g.screen.notice(fmt.Sprintf("%s; trying again in %v", brief(now.LastError), wait))
			}
		}
		if now.Lists > last.Lists {
			switch {
			case o.from != "" && last.Lists == 0:
				f.g.screen.notice(fmt.Sprintf("%s: the server no longer has the changes since resourceVersion %s; listing everything%s", o, o.from, because(now.LastError)))
			case last.Lists > 0:
				f.g.screen.notice(fmt.Sprintf("%s: had to list again; changes in the meantime are shown as one difference%s", o, because(now.LastError)))
			}
		}
		last = now
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// because formats a reason, if there is one.
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + brief(err)
}
