package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/samplepods"
)

// serve asks a kube-apiserver and a mirror of it for the same real pods, with
// the same client: over TLS, by a token, with the rights asked about, compressed if
// so said, which kubectl and all clients in Go ask for.
var serve = line{
	name: "serve",
	what: "Requests for %d pods, of a kube-apiserver and of a mirror",
	size: 5000, quick: 40,
	setup: func(ctx context.Context, size int) ([]string, func() error, error) {
		return launched(ctx, func(config *rest.Config) error {
			pods := samplepods.Clone(size, 1)
			if err := samplepods.Create(ctx, config, pods, 16); err != nil {
				return err
			}
			return samplepods.WriteStatus(ctx, config, pods, 16)
		}, "pods")
	},
	claims: []claim{
		{15, "server beside kube-apiserver: list 5,000 pods, JSON, gzip, resourceVersion=0, requests/s", "JSON, gzip, rv=0: requests/s", "tidings", "", timesAtLeast(20)},
		{15, "the same, newest state (no resourceVersion)", "JSON, gzip: requests/s", "tidings", "", timesAtLeast(20)},
		{15, "the same, CPU ms of the server a request", "JSON, gzip: CPU ms", "tidings", "", target{}},
		{15, "the same, not compressed, requests/s", "JSON: requests/s", "tidings", "", target{}},
		{15, "the same, not compressed, CPU ms of the server a request", "JSON: CPU ms", "tidings", "", target{}},
		{15, "list 5,000 pods, protobuf, gzip, resourceVersion=0, requests/s", "protobuf, gzip, rv=0: requests/s", "tidings", "", timesAtLeast(10)},
		{15, "the same, newest state", "protobuf, gzip: requests/s", "tidings", "", timesAtLeast(10)},
		{15, "the same, not compressed", "protobuf: requests/s", "tidings", "", target{}},
		{15, "get one pod, resourceVersion=0, requests/s", "get, rv=0: requests/s", "tidings", "", timesAtLeast(3)},
		{15, "the same, CPU ms of the server a request", "get, rv=0: CPU ms", "tidings", "", target{}},
		{15, "get one pod, newest state, requests/s", "get: requests/s", "tidings", "", timesAtLeast(3)},
		{15, "the same, CPU ms of the server, and of those it asks, a request", "get: CPU ms of all", "tidings", "", target{}},
	},
	sides: asking(func(ctx context.Context, c asked, size int) (figures, error) {
		out := figures{}
		time := period(size, 5000)
		count, _, pod, err := c.first(ctx, "/api/v1/pods")
		if err != nil {
			return nil, err
		}
		if count != size {
			return nil, fmt.Errorf("there are %d pods, not %d", count, size)
		}
		one := func(int) string { return "/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name }
		newest := func(int) string { return "/api/v1/pods" }
		for _, q := range []load{
			{"JSON, gzip, rv=0", 4, func(int) string { return "/api/v1/pods?resourceVersion=0" }, accepts(jsonType, true)},
			{"JSON, gzip", 4, newest, accepts(jsonType, true)},
			{"JSON", 4, newest, accepts(jsonType, false)},
			{"protobuf, gzip, rv=0", 4, func(int) string { return "/api/v1/pods?resourceVersion=0" }, accepts(protobufType, true)},
			{"protobuf, gzip", 4, newest, accepts(protobufType, true)},
			{"protobuf", 4, newest, accepts(protobufType, false)},
			{"get, rv=0", 16, func(int) string { return one(0) + "?resourceVersion=0" }, accepts(jsonType, true)},
			{"get", 16, one, accepts(jsonType, true)},
		} {
			if err := q.run(ctx, c, time, out); err != nil {
				return nil, err
			}
		}
		return out, nil
	}),
}

// serveLabel asks for few of many: small config maps, since etcd takes long to
// take in so many objects.
var serveLabel = line{
	name: "servelabel",
	what: "Requests for 10 of %d config maps by label, of a kube-apiserver and of a mirror",
	size: 100_000, quick: 1000,
	setup: func(ctx context.Context, size int) ([]string, func() error, error) {
		return launched(ctx, func(config *rest.Config) error { return createConfigMaps(ctx, config, size) }, "configmaps")
	},
	claims: []claim{
		{16, "server beside kube-apiserver: list by label 10 of 100,000 small config maps, resourceVersion=0, requests/s", "label, rv=0: requests/s", "tidings", "", timesAtLeast(100)},
		{16, "the same, newest state", "label: requests/s", "tidings", "", timesAtLeast(100)},
		{16, "the same, CPU ms of the server, and of those it asks, a request", "label: CPU ms of all", "tidings", "", target{}},
		{16, "list of all 100,000, one client, newest state right after something else has changed: ms", "all: ms", "tidings", "", timesAtMost(1)},
		{16, "the same, CPU ms of the servers", "all: CPU ms of all", "tidings", "", target{}},
	},
	sides: asking(func(ctx context.Context, c asked, size int) (figures, error) {
		out := figures{}
		values := size / 10
		by := func(more string) func(int) string {
			return func(i int) string {
				return "/api/v1/configmaps?labelSelector=" + answerLabel(10) + "%3D" + strconv.Itoa(i*7919%values) + more
			}
		}
		for _, q := range []load{
			{"label, rv=0", 16, by("&resourceVersion=0"), accepts(jsonType, true)},
			{"label", 16, by(""), accepts(jsonType, true)},
		} {
			if err := q.run(ctx, c, period(size, 100_000), out); err != nil {
				return nil, err
			}
		}
		return out, c.listAll(ctx, size, out)
	}),
}

// listAll times lists of everything by one client, each after the cluster has
// moved on while what is listed has not: a mirror has to find that out.
func (c asked) listAll(ctx context.Context, size int, out figures) error {
	caller, err := newClient(ctx, c.config)
	if err != nil {
		return err
	}
	defer caller.close()
	touch, err := toucher(os.Getenv("SERVED_UPSTREAM"))
	if err != nil {
		return err
	}
	const times = 5
	var took time.Duration
	own, behind := c.spent()
	for range times {
		if err := touch(ctx); err != nil {
			return err
		}
		begun := time.Now()
		if _, err := caller.get("/api/v1/configmaps", accepts(jsonType, true), nil); err != nil {
			return err
		}
		took += time.Since(begun)
	}
	ownNow, behindNow := c.spent()
	out["all: ms"] = took.Seconds() * 1e3 / times
	out["all: CPU ms of all"] = (ownNow - own + behindNow - behind) * 1e3 / times
	return nil
}

// launched launches the servers for the setup of a line.
func launched(ctx context.Context, fill func(*rest.Config) error, resources ...string) ([]string, func() error, error) {
	s, err := launch(ctx, fill, resources...)
	if err != nil {
		return nil, nil, err
	}
	return s.env(), s.stop, nil
}

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

func accepts(mediaType string, compressed bool) http.Header {
	header := http.Header{"Accept": {mediaType}}
	if compressed {
		header.Set("Accept-Encoding", "gzip")
	}
	return header
}

// period is how long a load lasts: not long where little is asked for, to see
// that all works.
func period(size, most int) time.Duration {
	if size < most/10 {
		return 100 * time.Millisecond
	}
	return 5 * time.Second
}

// first lists everything and returns how much there is, of which version, and one
// of it.
func (c asked) first(ctx context.Context, path string) (count int, version string, one metav1.ObjectMeta, err error) {
	caller, err := newClient(ctx, c.config)
	if err != nil {
		return 0, "", one, err
	}
	defer caller.close()
	var body bytes.Buffer
	if _, err := caller.get(path, accepts(jsonType, true), &body); err != nil {
		return 0, "", one, err
	}
	content := body.Bytes()
	if bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		packed, err := gzip.NewReader(&body)
		if err != nil {
			return 0, "", one, err
		}
		if content, err = io.ReadAll(packed); err != nil {
			return 0, "", one, err
		}
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(content, &list); err != nil {
		return 0, "", one, err
	}
	if len(list.Items) == 0 {
		return 0, "", one, fmt.Errorf("%s: the list is empty", path)
	}
	return len(list.Items), list.ResourceVersion, list.Items[len(list.Items)/2].ObjectMeta, nil
}

// load is requests made by some callers, each with a connection of its own, one
// after the other.
type load struct {
	name    string
	callers int
	path    func(i int) string
	header  http.Header
}

// run asks for some time, and measures to where the last answer has come.
func (l load) run(ctx context.Context, c asked, lasts time.Duration, out figures) error {
	callers := make([]*client, l.callers)
	for i := range callers {
		var err error
		if callers[i], err = newClient(ctx, c.config); err != nil {
			return err
		}
		defer callers[i].close()
		if _, err := callers[i].get(l.path(i), l.header, nil); err != nil { // connects
			return err
		}
	}
	var made, answered, read atomic.Int64
	var group errgroup.Group
	own, behind := c.spent()
	begun := time.Now()
	for _, caller := range callers {
		group.Go(func() error {
			for time.Since(begun) < lasts {
				n, err := caller.get(l.path(int(made.Add(1))), l.header, nil)
				if err != nil {
					return err
				}
				answered.Add(1)
				read.Add(n)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(begun)
	ownNow, behindNow := c.spent()
	n := float64(answered.Load())
	out[l.name+": requests/s"] = n / took.Seconds()
	out[l.name+": KB"] = float64(read.Load()) / n / 1024
	out[l.name+": CPU ms"] = (ownNow - own) * 1e3 / n
	out[l.name+": CPU ms of all"] = (ownNow - own + behindNow - behind) * 1e3 / n
	return nil
}
