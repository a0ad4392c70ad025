package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// historyReads reads a moment that is a third of the way back into a history of 50
// versions of each pod: see [churn].
var historyReads = line{
	name: "historyreads",
	what: "Reads of a moment from a history of %d pods with 50 versions of each",
	size: 100_000, quick: 200,
	setup: func(ctx context.Context, size int) ([]string, func() error, error) {
		dir, err := os.MkdirTemp("", "tidings-bench-")
		if err != nil {
			return nil, nil, err
		}
		remove := func() error { return os.RemoveAll(dir) }
		kept := filepath.Join(dir, "history")
		moment, err := fillHistory(ctx, kept, size)
		var used uint64
		if err == nil {
			used, err = settleHistory(kept)
		}
		return []string{"HISTORY=" + kept, fmt.Sprint("MOMENT=", moment), fmt.Sprint("DISK=", used)}, remove, err
	},
	claims: []claim{
		{18, "history of 100,000 pods, 5,000,000 versions: one pod at a moment, ms", "get ms", "history", nobody, atMost(5)},
		{18, "timeline of a pod, ms for 1,000 versions", "timeline ms", "history", nobody, atMost(30)},
		{18, "a namespace of 500 pods at a moment, ms", "namespace ms", "history", nobody, atMost(50)},
		{18, "all pods at a moment, s", "all s", "history", nobody, atMost(3)},
		{18, "the same, heap in MB while they are read", "all: heap MB", "history", nobody, target{}},
		{18, "changes since then, as a watch reads them: events/s", "changes: events/s", "history", nobody, atLeast(50_000)},
	},
	sides: []side{{"history", readHistory}},
}

// fillHistory records pods and 50 changes of each. It returns the version of the
// moment that is to be read.
func fillHistory(ctx context.Context, dir string, size int) (moment uint64, err error) {
	store, err := openHistory(dir)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	s, err := newChurned()
	if err != nil {
		return 0, err
	}
	made, left := newChurn(size), 50*size
	moment = made.version + uint64(left)*2/3
	s.list = made.list
	s.next = func() (change, error) {
		if left == 0 {
			return change{}, errPlayed
		}
		left--
		return made.next(), nil
	}
	s.before = func(n int) {
		if n%100 == 0 {
			follow(ctx, store, size+n-behind)
		}
	}
	return moment, s.run(ctx, store, func(*informer.Informer[*codec.Raw]) error {
		close(s.play)
		<-s.played
		follow(ctx, store, 51*size)
		return nil
	})
}

func readHistory(ctx context.Context, size int) (figures, error) {
	store, err := openHistory(os.Getenv("HISTORY"))
	if err != nil {
		return nil, err
	}
	defer store.Close()
	moment, err := strconv.ParseUint(os.Getenv("MOMENT"), 10, 64)
	if err != nil {
		return nil, err
	}
	series := store.Find(podsOf)
	disk, err := strconv.ParseFloat(os.Getenv("DISK"), 64)
	if err != nil {
		return nil, err
	}
	out := figures{"B a version": disk / float64(51*size)}
	at := func(read func(*history.State) error) error {
		state, err := series.AtVersion(moment)
		if err != nil {
			return err
		}
		defer state.Close()
		return read(state)
	}
	var keys []string
	before, begun := heap(), time.Now()
	err = at(func(state *history.State) error {
		for v, err := range state.All("", "") {
			if err != nil {
				return err
			}
			if keys = append(keys, v.Key); len(keys) == size/2 {
				out["all: heap MB"] = (float64(heap()) - float64(before)) / (1 << 20)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out["all s"], out["all: pods"] = time.Since(begun).Seconds(), float64(len(keys))

	const times = 20
	begun = time.Now()
	for i := range times {
		err := at(func(state *history.State) error {
			_, ok, err := state.Get(keys[(i*7919+1)%len(keys)])
			if err == nil && !ok {
				err = fmt.Errorf("%s is not there", keys[i])
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	out["get ms"] = time.Since(begun).Seconds() * 1e3 / times

	var pods int
	begun = time.Now()
	for i := range times {
		namespace, _, _ := strings.Cut(keys[i*7919%len(keys)], "/")
		err := at(func(state *history.State) error {
			for _, err := range state.All(namespace, "") {
				if err != nil {
					return err
				}
				pods++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	out["namespace ms"], out["namespace: pods"] = time.Since(begun).Seconds()*1e3/times, float64(pods)/times

	var first string // has the most versions
	for pod := range samplepods.All(size, 1) {
		first = pod.Namespace + "/" + pod.Name
		break
	}
	begun = time.Now()
	versions := 0
	for range times {
		begin, err := series.At(series.Begin())
		if err != nil {
			return nil, err
		}
		for _, err := range begin.ChangesOf(begin.Cursor(), first).Read(ctx, time.Time{}) {
			if err != nil {
				return nil, errors.Join(err, begin.Close())
			}
			versions++
		}
		if err := begin.Close(); err != nil {
			return nil, err
		}
	}
	out["timeline: versions"] = float64(versions) / times
	out["timeline ms"] = time.Since(begun).Seconds() * 1e3 * 1000 / float64(max(versions, 1))

	begun = time.Now()
	events := 0
	err = at(func(state *history.State) error {
		for _, err := range state.WatchAfter(func(string) bool { return true }, false).Read(ctx, time.Time{}) {
			if err != nil {
				return err
			}
			if events++; events == 1_000_000 {
				return nil
			}
		}
		return nil
	})
	out["changes: events/s"], out["changes: events"] = float64(events)/time.Since(begun).Seconds(), float64(events)
	return out, err
}
