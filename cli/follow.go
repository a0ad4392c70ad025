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

	"github.com/tidings-io/tidings/informer"
)

// follower prints what happens to objects as informers tell it.
type follower struct {
	g         *globals
	format    newsFormat
	needsAll  bool   // the format needs the objects, not only their metadata
	many      bool   // there are several clusters: name them
	since     string // start after this version, without an initial list
	once      bool   // end with the initial list
	watchOnly bool   // leave the initial list out
	what      string // for the progress line

	mu    sync.Mutex
	lists []watched
}

// watched is what all informers have in common.
type watched interface {
	Status() informer.Status
	StatusChanged() <-chan struct{}
}

// errDone ends the loops of --once.
var errDone = errors.New("done")

// run follows all objects until ctx ends, the output breaks, or the server
// refuses one of them. With once the initial lists come in the order of all.
func (f *follower) run(ctx context.Context, all []objects) error {
	group, ctx := errgroup.WithContext(ctx)
	progress, synced := context.WithCancel(ctx)
	defer synced()
	var shown errgroup.Group
	shown.Go(func() error { f.showProgress(progress, len(all)); return nil })
	turn := make(chan struct{})
	close(turn)
	for _, o := range all {
		before, after := turn, make(chan struct{})
		turn = after
		group.Go(func() error {
			if f.needsAll {
				return follow[*unstructured.Unstructured](ctx, f, o, before, after)
			}
			return follow[*metav1.PartialObjectMetadata](ctx, f, o, before, after)
		})
	}
	err := group.Wait()
	synced()
	_ = shown.Wait()
	if flushed := f.g.screen.flush(); err == nil {
		err = flushed
	}
	return err
}

// follow follows one resource with an informer of T. With once it waits for
// before, prints the list, and closes after.
func follow[T informer.Object](ctx context.Context, f *follower, o objects, before <-chan struct{}, after chan<- struct{}) error {
	opts := []informer.Option{
		informer.Resource(o.resource.Versioned()), informer.InNamespace(o.namespace),
		informer.WithLabels(f.g.selector), informer.WithFields(o.fieldSelector(f.g.fieldSelector)),
		informer.WithLogger(f.g.log),
	}
	if f.since != "" {
		opts = append(opts, informer.From(f.since))
	}
	inf, err := informer.New[T](o.cluster, opts...)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.lists = append(f.lists, inf)
	f.mu.Unlock()

	ctx, stop := context.WithCancel(ctx)
	// A handler that is there before the informer starts is told everything as it
	// happened, which with --since is not the same as the state it led to.
	events := make(chan informer.Event[T])
	inf.AddHandler(informer.HandlerFunc[T](func(e informer.Event[T]) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}))
	var parts errgroup.Group
	parts.Go(func() error {
		defer stop() // refused: there will be no events
		return inf.Run(ctx)
	})
	parts.Go(func() error { f.narrate(ctx, inf, o); return nil })
	if f.once {
		select {
		case <-before:
		case <-ctx.Done():
		}
	}
	var printed error
	first := f.since == "" // the list that Synced ends; later ones are news
	for printed == nil && ctx.Err() == nil {
		select {
		case e := <-events:
			printed = tell(f, o, e, first)
			first = first && e.Type != informer.Synced
		case <-ctx.Done():
		}
	}
	stop()
	err = parts.Wait()
	switch {
	case errors.Is(printed, errDone):
		close(after)
		return nil
	case printed != nil:
		return printed
	}
	return err
}

// tell prints one event, perhaps of the first list. It returns errDone when there
// is to be no other.
func tell[T informer.Object](f *follower, o objects, e informer.Event[T], first bool) error {
	switch e.Type {
	case informer.Added, informer.Updated, informer.Deleted:
		listed := first && e.InInitialList
		if listed && f.watchOnly {
			return nil
		}
		n := news{kind: o.resource.Kind, event: e.Type.String(), meta: any(e.Object).(metav1.Object)}
		if f.many {
			n.cluster = o.cluster.Name()
		}
		n.object, _ = any(e.Object).(*unstructured.Unstructured)
		n.old, _ = any(e.Old).(*unstructured.Unstructured)
		// The first list goes out in large pieces, what happens then at once.
		return f.g.screen.print(!listed, func(w io.Writer) { f.format(w, n) })
	case informer.Synced:
		if err := f.g.screen.flush(); err != nil || !f.once {
			return err
		}
		return errDone
	}
	return nil
}

// narrate says on stderr what a reader of the events has to know: that there are
// difficulties, and that events may be missing because of a new list.
func (f *follower) narrate(ctx context.Context, inf watched, o objects) {
	tick := time.NewTicker(time.Second) // the number of lists moves without notice
	defer tick.Stop()
	var last informer.Status
	for {
		changed := inf.StatusChanged()
		now := inf.Status()
		if wait := time.Until(now.Retry).Round(time.Second / 10); now.Errors > last.Errors && wait > 0 {
			switch now.Phase {
			case informer.Waiting, informer.Denied, informer.Gone:
				f.g.screen.say(fmt.Sprintf("%s; trying again in %v", brief(now.LastError), wait))
			}
		}
		if now.Lists > last.Lists {
			switch {
			case f.since != "" && last.Lists == 0:
				f.g.screen.say(fmt.Sprintf("%s: the changes since resourceVersion %s are no longer to be had, so here is all there is%s", o, f.since, because(now.LastError)))
			case last.Lists > 0:
				f.g.screen.say(fmt.Sprintf("%s: had to list again; of what happened meanwhile only the difference is shown%s", o, because(now.LastError)))
			}
		}
		last = now
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// because gives the reason, if there is one.
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + brief(err)
}

// showProgress keeps a line on a terminal until all first lists are there.
func (f *follower) showProgress(ctx context.Context, total int) {
	if !f.g.screen.streams.ErrTerminal || f.since != "" {
		return
	}
	defer f.g.screen.showProgress("")
	tick := time.NewTimer(progressAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(progressEvery)
		}
		f.mu.Lock()
		synced := 0
		var counts []count
		for _, inf := range f.lists {
			s := inf.Status()
			if s.Synced {
				synced++
			} else {
				counts = append(counts, count{s.Received, s.Expected})
			}
		}
		f.mu.Unlock()
		if synced == total {
			return
		}
		f.g.screen.showProgress(progressLine(f.what, counts))
	}
}
