package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// serveWatch has many watch EndpointSlices, as kube-proxies do: in protobuf, each
// over a connection of its own.
var serveWatch = line{
	name: "servewatch",
	what: "%d watches of EndpointSlices at 200 changes a second, of a kube-apiserver and of a mirror",
	size: 1000, quick: 20,
	claims: []claim{
		{17, "server beside kube-apiserver: 1,000 watches at 200 changes/s, CPU µs of the server a delivery", "CPU µs a delivery", "tidings", "", timesAtMost(0.2)},
		{17, "the same: deliveries/s", "deliveries/s", "tidings", "", target{}},
		{17, "memory KB (RSS) of an idle watch with a connection of its own", "RSS KB a watch", "tidings", "", atMost(40)},
	},
	sides: []side{
		{"kube-apiserver", func(ctx context.Context, size int) (figures, error) { return watchServer(ctx, false, size) }},
		{"tidings", func(ctx context.Context, size int) (figures, error) { return watchServer(ctx, true, size) }},
	},
}

const slicesPath = "/apis/discovery.k8s.io/v1/endpointslices"

// watchServer measures one of the servers. They are started for the occasion, so
// that what they have done before does not show in their memory.
func watchServer(ctx context.Context, mirror bool, watches int) (figures, error) {
	changes := min(watches, 1000)
	s, err := launch(ctx, func(config *rest.Config) error { return createSlices(ctx, config, 100) }, "endpointslices")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := s.stop(); err != nil {
			progress("servewatch: %v", err)
		}
	}()
	for _, e := range s.env() {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	c, err := askedOf(mirror)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("SERVED_UPSTREAM"))
	if err != nil {
		return nil, err
	}
	write, err := changer(config)
	if err != nil {
		return nil, err
	}
	out := figures{}

	few := &watchers{c: c}
	if err := few.open(ctx, max(watches/100, 1)); err != nil { // what all share is there
		return nil, err
	}
	before := c.settled()
	all := &watchers{c: c}
	if err := all.open(ctx, watches); err != nil {
		return nil, err
	}
	defer all.close()
	after := c.settled()
	out["RSS KB a watch"] = (after - before) / float64(watches)
	few.close()

	begun := time.Now()
	own, _ := c.spent()
	for i := range changes {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * 5 * time.Millisecond)))
		if err := write(ctx, i); err != nil {
			return nil, err
		}
	}
	wrote := time.Since(begun)
	if err := await(ctx, 3*time.Minute, func() error {
		if err := all.err(); err != nil {
			return errors.Join(errEnded, err)
		}
		if got := all.delivered.Load(); got < int64(watches*changes) {
			return fmt.Errorf("%d of %d deliveries have come", got, watches*changes)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	ownNow, _ := c.spent()
	all.close()
	spent := ownNow - own

	// The changes themselves cost their server, too: the same once more, with
	// nobody watching.
	own, _ = c.spent()
	for i := range changes {
		if err := write(ctx, changes+i); err != nil {
			return nil, err
		}
	}
	ownNow, _ = c.spent()
	n := float64(watches * changes)
	out["CPU µs a delivery"] = (spent - (ownNow - own)) * 1e6 / n
	out["CPU µs a change, nobody watching"] = (ownNow - own) * 1e6 / float64(changes)
	out["deliveries/s"] = n / took.Seconds()
	out["changes/s"] = float64(changes) / wrote.Seconds()
	return out, nil
}

// watchers are open watches of everything.
type watchers struct {
	c         asked
	delivered atomic.Int64 // changes
	cancel    context.CancelFunc
	group     errgroup.Group
	failed    atomic.Pointer[error]
}

// open opens so many watches, each over a connection of its own.
func (w *watchers) open(ctx context.Context, n int) error {
	count, newest, _, err := w.c.first(ctx, slicesPath)
	if err != nil || count == 0 {
		return errors.Join(err, errors.New("there are no EndpointSlices"))
	}
	ctx, w.cancel = context.WithCancel(ctx)
	path := slicesPath + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion=" + url.QueryEscape(newest)
	var opening errgroup.Group
	opening.SetLimit(16)
	for range n {
		opening.Go(func() error {
			caller, err := newClient(ctx, w.c.config)
			if err != nil {
				return err
			}
			body, err := caller.open(path, accepts(protobufType+";stream=watch", true))
			if err != nil {
				caller.close()
				return err
			}
			stop := context.AfterFunc(ctx, caller.close)
			w.group.Go(func() error {
				defer caller.close()
				defer stop()
				if err := w.read(body); ctx.Err() == nil {
					w.failed.CompareAndSwap(nil, &err)
				}
				return nil
			})
			return nil
		})
	}
	return opening.Wait()
}

// read counts the changes that a watch tells of.
func (w *watchers) read(body io.Reader) error {
	in := bufio.NewReaderSize(body, 4<<10)
	var size [4]byte
	for {
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return fmt.Errorf("a watch has ended: %w", err)
		}
		head, err := in.Peek(3) // tag and length of the type, and its first letter
		if err != nil {
			return err
		}
		switch head[2] {
		case 'M':
			w.delivered.Add(1)
		case 'B':
		default:
			return fmt.Errorf("a watch tells of %q", head)
		}
		if _, err := in.Discard(int(binary.BigEndian.Uint32(size[:]))); err != nil {
			return err
		}
	}
}

func (w *watchers) err() error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *watchers) close() {
	if w.cancel == nil {
		return
	}
	w.cancel()
	_ = w.group.Wait() // they end because of that
}

// settled is the memory of the server once it does not change any more.
func (c asked) settled() float64 {
	last := rssOf(c.pid)
	for range 20 {
		time.Sleep(500 * time.Millisecond)
		now := rssOf(c.pid)
		if diff := now - last; diff < 64 && diff > -64 {
			return now
		}
		last = now
	}
	return last
}

// changer returns a function that changes one of 100 EndpointSlices.
func changer(config *rest.Config) (func(ctx context.Context, i int) error, error) {
	slices, err := discoveryclient.NewForConfig(inProtobuf(config))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, i int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"%d"}}}`, i)
		_, err := slices.EndpointSlices(metav1.NamespaceDefault).Patch(ctx, sliceName(i%100), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}, nil
}
