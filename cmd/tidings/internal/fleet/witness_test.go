package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/object"
)

// told is an event as a handler was told of it.
type told struct {
	kind                                informer.EventType
	name, id                            string // id: resourceVersion of the object
	version                             uint64
	relist, folded, tombstone, complete bool
}

func (e told) String() string {
	return fmt.Sprintf("%v %s@%s at %d (relist %v, folded %v, tombstone %v, resumable %v)", e.kind, e.name, e.id, e.version, e.relist, e.folded, e.tombstone, e.complete)
}

// witness notes the events of the config maps that a mirror delivers.
type witness struct {
	name string

	mu     sync.Mutex
	events []told
}

// informer waits for the informer of the config maps.
func (p *part) informer() (inf *mirror.Informer) {
	p.Helper()
	p.eventually("the informer", func() error {
		c, err := p.mirror.Cluster("prod")
		if err != nil {
			return err
		}
		res, err := c.ResourceFor(p.ctx, configMaps)
		if err == nil {
			inf, err = c.Ready(p.ctx, res, "")
		}
		return err
	})
	return inf
}

// witness begins to note events.
func (p *part) witness(name string) *witness {
	p.Helper()
	w := &witness{name: name}
	p.informer().Engine().AddHandler(informer.HandlerFunc[*codec.Raw](w.handle), informer.Bookmarks(), informer.Named("witness"))
	return w
}

func (w *witness) handle(e informer.Event[*codec.Raw]) {
	t := told{
		kind: e.Type, version: object.Version(e.ResourceVersion()),
		relist: e.Relist || e.InInitialList, folded: e.Folded, tombstone: e.Tombstone, complete: e.Resumable || e.Object == nil,
	}
	if e.Object != nil {
		t.name, t.id = e.Object.GetNamespace()+"/"+e.Object.GetName(), e.Object.GetResourceVersion()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, t)
}

// verdict compares the events with the history of the cluster. It returns "" if nothing was
// lost, nothing came twice and nothing went back: between two events without a list there is
// exactly one change of the history, and after each list the state is that of the cluster.
func (w *witness) verdict(changes []fakeapi.Change) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	truth, known, at, next, synced := map[string]string{}, map[string]string{}, uint64(0), 0, false
	for i, e := range w.events {
		wrong := func(format string, args ...any) string {
			return fmt.Sprintf("%s was told as event %d of %d: %v, after version %d: %s", w.name, i+1, len(w.events), e, at, fmt.Sprintf(format, args...))
		}
		if e.version < at {
			return wrong("it went back")
		}
		passed := 0
		for ; next < len(changes) && object.Version(changes[next].Now.GetResourceVersion()) <= e.version; next++ {
			c := changes[next]
			name, id := c.Now.GetNamespace()+"/"+c.Now.GetName(), c.Now.GetResourceVersion()
			passed++
			if truth[name] = id; c.Type == watch.Deleted {
				delete(truth, name)
			}
		}
		at = e.version
		switch e.kind {
		case informer.Added, informer.Updated:
			known[e.name] = e.id
		case informer.Deleted:
			delete(known, e.name)
		case informer.Synced:
			synced = true
		}
		switch {
		case !synced:
			continue
		case e.kind == informer.Added || e.kind == informer.Updated || e.kind == informer.Deleted:
			if !e.relist && !e.folded && !e.tombstone && passed != 1 {
				return wrong("it stands for %d changes", passed)
			}
		case e.kind == informer.Bookmark && !e.relist && passed != 0:
			return wrong("%d changes before it were not delivered", passed)
		}
		if e.complete && !maps.Equal(known, truth) {
			return wrong("then it had %v, and the cluster had %v", known, truth)
		}
	}
	return ""
}

// lists is the number of lists that found something after the first.
func (w *witness) lists() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	synced := false
	for _, e := range w.events {
		synced = synced || e.kind == informer.Synced
		if synced && e.relist && e.complete {
			n++
		}
	}
	return n
}

// history returns the changes of the config maps so far.
func (r *rig) history() []fakeapi.Change {
	r.Helper()
	more, ok := r.api.Changes(configMaps, uint64(len(r.past)))
	if !ok {
		r.Fatal("the history of the cluster is too short")
	}
	r.past = append(r.past, more...)
	return r.past
}

// compact lets the API server forget the history.
func (r *rig) compact() {
	r.Helper()
	r.history()
	r.api.Compact()
}

// check fails the test if the verdict is bad.
func (r *rig) check(all ...*witness) {
	r.Helper()
	past := r.history()
	for _, w := range all {
		if wrong := w.verdict(past); wrong != "" {
			r.Error(wrong)
		}
	}
}

// counters are config maps whose values only go up.
type counters struct {
	*rig
	mu      sync.Mutex
	values  map[string]int
	removed map[string]bool // once: its value has gone back
}

func (c *counters) wasRemoved(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed[name]
}

// remove removes a counter.
func (c *counters) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.values[name]; ok {
		c.must(c.api.Delete(configMaps, "shop", name))
		delete(c.values, name)
		c.removed[name] = true
	}
}

// write writes a counter.
func (c *counters) write(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(name, strconv.Itoa(c.values[name]+1))
	c.values[name]++
}

// now returns the values.
func (c *counters) now() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for name, n := range c.values {
		out[name] = strconv.Itoa(n)
	}
	return out
}

// prober reads the newest state of a mirror again and again, and holds it against what was
// written before.
func (c *counters) prober(p *part) (fresh func() int) {
	var mu sync.Mutex
	n, stop, done := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for {
			select {
			case <-pause.C:
			case <-stop:
				return
			}
			before := c.now()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			got, err := p.listIn(ctx, read.Latest)
			cancel()
			if err != nil {
				continue // refused
			}
			for name, value := range before {
				if c.wasRemoved(name) {
					continue
				}
				least, _ := strconv.Atoi(value)
				if has, _ := strconv.Atoi(got[name]); has < least {
					c.Errorf("a read of the newest state found %s=%d after %d was written", name, has, least)
				}
			}
			mu.Lock()
			n++
			mu.Unlock()
		}
	}()
	c.Cleanup(func() {
		close(stop)
		<-done
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// changes returns what was told about objects, in the order of their names.
func (w *witness) changes() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.name != "" {
			all = append(all, fmt.Sprintf("%s %v@%s", e.name, e.kind, e.id))
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) })
	return all
}
