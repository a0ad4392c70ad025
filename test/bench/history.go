package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// historyWrites is what it costs to keep every version of pods: see [churn].
var historyWrites = line{
	name: "history",
	what: "An informer of %d pods, with and without a history of them",
	size: 20_000, quick: 200,
	setup: func(_ context.Context, size int) ([]string, func() error, error) {
		dir, err := os.MkdirTemp("", "tidings-bench-")
		if err != nil {
			return nil, nil, err
		}
		name := filepath.Join(dir, "churn")
		return []string{"CHURN=" + name}, func() error { return os.RemoveAll(dir) }, writeChurn(name, size, versionsOf(size))
	},
	claims: []claim{
		{17, "history of 20,000 pods: disk, B a version", "B a version", "history", nobody, atMost(300)},
		{17, "sustained ingest, versions/s", "versions/s", "history", nobody, atLeast(10_000)},
		{17, "CPU µs a version, beside those of the informer", "CPU µs a version", "history", nobody, atMost(100)},
		{17, "watch to handler at 500 changes/s, p99 in ms", "p99 ms", "history", "", timesAtMost(1.2)},
	},
	sides: []side{
		{"no history", func(ctx context.Context, size int) (figures, error) {
			return paced(ctx, size, nil)
		}},
		{"history", func(ctx context.Context, size int) (figures, error) {
			out, err := ingest(ctx, size)
			if err != nil {
				return nil, err
			}
			err = inStore(func(_ string, store *history.Store) error {
				p, err := paced(ctx, size, store)
				for name, value := range p {
					out[name] = value
				}
				return err
			})
			return out, err
		}},
	},
}

// versionsOf is the number of changes for a number of pods.
func versionsOf(pods int) int { return 10 * pods }

var podsOf = history.Resource{Cluster: "bench", ClusterUID: "1", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

// inStore calls use with a new history.
func inStore(use func(dir string, store *history.Store) error) error {
	dir, err := os.MkdirTemp("", "tidings-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store, err := openHistory(dir)
	if err != nil {
		return err
	}
	return errors.Join(use(dir, store), store.Close())
}

func openHistory(dir string) (*history.Store, error) {
	return history.Open(dir, history.Options{Size: 1 << 40})
}

// settleHistory opens a history again and waits until its files do not change any more. It
// returns the disk space that they take.
func settleHistory(dir string) (uint64, error) {
	store, err := openHistory(dir)
	if err != nil {
		return 0, err
	}
	for used, quiet := store.DiskUsage(), 0; quiet < 20; quiet++ {
		time.Sleep(100 * time.Millisecond)
		if now := store.DiskUsage(); now != used {
			used, quiet = now, 0
		}
	}
	used := store.DiskUsage()
	return used, store.Close()
}

// churned is a source of changes for an informer of encoded objects, as a mirror has.
type churned struct {
	list   func(each func(change) error) error
	next   func() (change, error) // an error ends them
	decode codec.Codec[*codec.Raw]
	// before is called before each change.
	before func(n int)
	play   chan struct{} // closed to begin
	played chan struct{} // closed after the last change
}

// errPlayed ends the changes.
var errPlayed = errors.New("all changes have been played")

func newChurned() (*churned, error) {
	decode, err := codec.For[*codec.Raw](corev1.SchemeGroupVersion.WithKind("Pod"), codec.Options{KeepManagedFields: true, Pack: codec.NewPacker()})
	return &churned{decode: decode, before: func(int) {}, play: make(chan struct{}), played: make(chan struct{})}, err
}

// replayed plays a file that writeChurn has written.
func replayed(size int) (*churned, *recordedChurn, error) {
	from, err := openChurn(os.Getenv("CHURN"))
	if err != nil {
		return nil, nil, err
	}
	s, err := newChurned()
	if err != nil {
		return nil, nil, err
	}
	s.list = func(each func(change) error) error {
		for range size {
			c, err := from.next()
			if err != nil {
				return err
			}
			if err := each(c); err != nil {
				return err
			}
		}
		return nil
	}
	s.next = from.next
	return s, from, nil
}

func (s *churned) List(_ context.Context, each func(*codec.Raw) error) (string, error) {
	err := s.list(func(c change) error {
		o, err := s.decode.Decode(codec.JSON, c.json)
		if err != nil {
			return err
		}
		return each(o)
	})
	return strconv.Itoa(1_000_000_000), err
}

func (s *churned) Watch(ctx context.Context, _ string, each func(informer.Change[*codec.Raw]) error) error {
	select {
	case <-s.play:
	case <-ctx.Done():
		return ctx.Err()
	}
	for n := 0; ctx.Err() == nil; n++ {
		c, err := s.next()
		if err != nil { // the end
			close(s.played)
			break
		}
		s.before(n)
		o, err := s.decode.Decode(codec.JSON, c.json)
		if err != nil {
			return err
		}
		if err := each(informer.Change[*codec.Raw]{Type: c.kind, Object: o}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// run runs an informer of the source, with a history if store is not nil.
func (s *churned) run(ctx context.Context, store *history.Store, use func(*informer.Informer[*codec.Raw]) error) error {
	inf, err := informer.NewFromSource("bench", s, informer.Resource("pods"))
	if err != nil {
		return err
	}
	recording, end := context.WithCancel(ctx)
	defer end()
	recorded := make(chan error, 1)
	if store != nil {
		events, stop := history.Subscribe(recording, inf)
		defer stop()
		go func() { recorded <- store.Record(recording, podsOf, events, history.RecordOptions{}) }()
	}
	if err := inf.Start(ctx); err != nil {
		return err
	}
	err = use(inf)
	end()
	if store != nil {
		err = errors.Join(err, <-recorded)
	}
	return errors.Join(err, inf.Stop(ctx))
}

// behind is how many changes may wait for the disk in a sustained ingest.
const behind = 1000

// follow waits until a history has so many versions.
func follow(ctx context.Context, store *history.Store, versions int) {
	for ctx.Err() == nil {
		if x := store.Find(podsOf); x != nil && int(x.Stats().Versions) >= versions {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// playAll plays all changes as fast as they are taken. It returns how long that took, and
// the CPU time so far, since they began.
func playAll(ctx context.Context, size int, store *history.Store) (wall float64, busy func() float64, err error) {
	s, from, err := replayed(size)
	if err != nil {
		return 0, nil, err
	}
	defer from.close()
	err = s.run(ctx, store, func(*informer.Informer[*codec.Raw]) error {
		if store != nil {
			follow(ctx, store, size)
			s.before = func(n int) {
				if n%100 == 0 {
					follow(ctx, store, size+n-behind)
				}
			}
		}
		begun, used := time.Now(), cpu()
		close(s.play)
		<-s.played
		if store != nil {
			follow(ctx, store, size+versionsOf(size))
		}
		wall, busy = time.Since(begun).Seconds(), func() float64 { return cpu() - used }
		return nil
	})
	return wall, busy, err
}

// ingest records as fast as the history can.
func ingest(ctx context.Context, size int) (figures, error) {
	_, busy, err := playAll(ctx, size, nil)
	if err != nil {
		return nil, err
	}
	n, without := float64(versionsOf(size)), busy()
	out := figures{"CPU µs a version, of the informer": without * 1e6 / n}
	err = inStore(func(dir string, store *history.Store) error {
		wall, busy, err := playAll(ctx, size, store)
		if err != nil {
			return err
		}
		out["versions/s"] = n / wall
		if err := store.Close(); err != nil {
			return err
		}
		used, err := settleHistory(dir)
		out["B a version"] = float64(used) / (n + float64(size))
		out["CPU µs a version"] = (busy() - without) * 1e6 / n // with what is left for later
		return err
	})
	return out, err
}

// paced plays changes, 500 a second, and measures the time to a handler.
func paced(ctx context.Context, size int, store *history.Store) (figures, error) {
	s, from, err := replayed(size)
	if err != nil {
		return nil, err
	}
	defer from.close()
	n := min(5000, versionsOf(size))
	play, left := s.next, n
	s.next = func() (change, error) {
		if left--; left < 0 {
			return change{}, errPlayed
		}
		return play()
	}
	var took []time.Duration
	begun := make([]time.Time, n)
	done := make(chan struct{})
	err = s.run(ctx, store, func(inf *informer.Informer[*codec.Raw]) error {
		if store != nil {
			follow(ctx, store, size)
		}
		start := time.Now()
		s.before = func(i int) {
			time.Sleep(time.Until(start.Add(time.Duration(i) * 2 * time.Millisecond)))
			begun[i] = time.Now()
		}
		inf.AddHandler(informer.HandlerFunc[*codec.Raw](func(e informer.Event[*codec.Raw]) {
			if e.Object == nil || e.InInitialList {
				return
			}
			took = append(took, time.Since(begun[len(took)]))
			if len(took) == n {
				close(done)
			}
		}))
		close(s.play)
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Minute):
			return errors.New("the handler has not got every change")
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1e3 }
	return figures{"p50 ms": at(0.5), "p99 ms": at(0.99)}, nil
}
