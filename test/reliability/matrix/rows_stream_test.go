package matrix

import (
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
)

// initial puts an action on the next WatchList stream, once. The server's informers list
// in pages.
func initial(action faultproxy.Action) func(*line) injected {
	return func(l *line) injected {
		if l.name == "server" {
			return injected{none: true}
		}
		return rule(l, &faultproxy.Rule{Verb: faultproxy.WatchList, Times: 1, Action: action})
	}
}

// unfinished is initial, of a stream that does not end by itself: the fault is over
// when all has been listed in another way.
func unfinished(action faultproxy.Action) func(*line) injected {
	return func(l *line) injected {
		i := initial(action)(l)
		i.hit = func() bool { return l.status().Synced }
		return i // hit is not asked if there is none
	}
}

const broken = "unexpected EOF|stream error|INTERNAL_ERROR"

// streamRows break watches and what is streamed over them.
var streamRows = []*row{
	{Fault: "reset in the middle of an event", While: listing, Error: broken, Inject: initial(faultproxy.CutFrame(3))},
	{Fault: "reset in the middle of an event", While: watching, Error: broken, Inject: next("watch", faultproxy.CutFrame(3))},
	{Fault: "event that ends too soon, in good order", While: listing, Error: "unexpected EOF", Inject: initial(faultproxy.TruncateFrame(3))},
	{Fault: "event that ends too soon, in good order", While: watching, Error: "unexpected EOF", Inject: next("watch", faultproxy.TruncateFrame(3))},
	{Fault: "event that is garbage", While: listing, Error: "protobuf watch event", Inject: initial(faultproxy.GarbleFrame(3))},
	{Fault: "event that is garbage", While: watching, Error: "protobuf watch event", Inject: next("watch", faultproxy.GarbleFrame(3))},
	{Fault: "410 in the stream", While: listing, Inject: initial(faultproxy.ErrorEvent(3, expired))},
	{Fault: "410 in the stream", While: watching, Error: "too old resource version", Inject: next("watch", faultproxy.ErrorEvent(3, expired))},
	{Fault: "500 in the stream", While: watching, Error: "etcdserver: leader changed", Inject: next("watch", faultproxy.ErrorEvent(3, internal))},
	{Fault: "stream that ends before the bookmark", While: listing, Inject: initial(faultproxy.EndAfter(4))},
	{Fault: "bookmark after the initial events never comes", While: listing, Inject: unfinished(faultproxy.DropBookmarks(true))},
	{Fault: "initial events stop coming", While: listing, Inject: unfinished(faultproxy.StallAfter(3))},
	{Fault: "no bookmarks at all", While: watching, Inject: func(l *line) injected {
		i := next("watch", faultproxy.DropBookmarks(true))(l)
		through := l.moved(20)
		hit := i.hit
		i.hit = func() bool { return hit() && through() }
		return i
	}, Error: broken},
	{Fault: "every event twice", While: watching, Error: broken, Inject: func(l *line) injected {
		i := next("watch", faultproxy.Twice())(l)
		through := l.moved(20)
		hit := i.hit
		i.hit = func() bool { return hit() && through() }
		return i
	}},
	{Fault: "load balancer that cuts watches every second", While: watching, Errors: 3, Error: broken, Busy: 12, Inject: func(l *line) injected {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				l.cutWatches()
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
			}
		}()
		return injected{heal: func() { close(stop); <-done }}
	}},
}
