package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/soak"
)

// clients are the watches and lists of a run.
type clients struct {
	url        string
	namespaces int

	parts   sync.WaitGroup
	open    atomic.Int64
	counted atomic.Pointer[counts] // of the current step, nil between steps
}

// counts are the measurements of one step.
type counts struct {
	delivered histogram // time from a change to its delivery
	lists     histogram // time of lists and gets
	refused   atomic.Uint64
	broken    atomic.Uint64 // watches that ended, responses that were cut off
}

// watch keeps one watch open until ctx ends: of one namespace or, with everything, of
// all; by the Kubernetes API or, with events, as server-sent events.
func (c *clients) watch(ctx context.Context, client *http.Client, n int, everything, events bool) {
	path := "/api/v1/namespaces/" + namespaceName(n%c.namespaces) + "/configmaps"
	query := url.Values{"watch": {"true"}, "resourceVersion": {"0"}}
	switch {
	case events && everything:
		path, query = "/core/v1/configmaps", url.Values{"watch": {"true"}}
	case events:
		path, query = "/core/v1/configmaps/"+namespaceName(n%c.namespaces), url.Values{"watch": {"true"}}
	case everything:
		path = "/api/v1/configmaps"
	}
	for soak.Sleep(ctx, c.watchOnce(ctx, client, c.url+path+"?"+query.Encode())) {
	}
}

// watchOnce returns the time to wait before the next watch.
func (c *clients) watchOnce(ctx context.Context, client *http.Client, url string) time.Duration {
	begun := time.Now()
	resp, err := get(ctx, client, url)
	if err != nil {
		c.broke(ctx)
		return time.Second
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		c.refuse()
		return 5 * time.Second
	}
	if resp.StatusCode != http.StatusOK {
		c.broke(ctx)
		return time.Second
	}
	c.open.Add(1)
	defer c.open.Add(-1)
	// Small, since there are thousands.
	lines := bufio.NewReaderSize(resp.Body, 4<<10)
	for {
		// The time of a change is at the beginning of its data. What does not fit
		// into the buffer is ignored.
		line, err := lines.ReadSlice('\n')
		if at, ok := timeOf(line); ok {
			if now := c.counted.Load(); now != nil && at.After(begun) {
				now.delivered.add(time.Since(at))
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			c.broke(ctx)
			return time.Second
		}
	}
}

func (c *clients) broke(ctx context.Context) {
	if now := c.counted.Load(); now != nil && ctx.Err() == nil {
		now.broken.Add(1)
	}
}

func (c *clients) refuse() {
	if now := c.counted.Load(); now != nil {
		now.refused.Add(1)
	}
}

// list makes a number of lists and gets a second until ctx ends.
func (c *clients) list(ctx context.Context, client *http.Client, rate int) {
	if rate <= 0 {
		return
	}
	random := rand.New(rand.NewPCG(3, 4))
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var parts sync.WaitGroup
	defer parts.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		namespace := "/api/v1/namespaces/" + namespaceName(random.IntN(c.namespaces)) + "/configmaps"
		path := namespace + "?resourceVersion=0"
		switch n := random.IntN(100); {
		case n < 40:
		case n < 60:
			path = namespace // as fresh as the cluster
		case n < 90:
			path = namespace + "/config-0?resourceVersion=0"
		case n < 98:
			path = "/api/v1/configmaps?resourceVersion=0&limit=100"
		default:
			path = "/api/v1/configmaps?resourceVersion=0"
		}
		parts.Go(func() { c.listOnce(ctx, client, c.url+path) })
	}
}

func (c *clients) listOnce(ctx context.Context, client *http.Client, url string) {
	begun := time.Now()
	resp, err := get(ctx, client, url)
	if err != nil {
		c.broke(ctx)
		return
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		c.refuse()
	case err != nil || resp.StatusCode != http.StatusOK:
		c.broke(ctx)
	default:
		if now := c.counted.Load(); now != nil {
			now.lists.add(time.Since(begun))
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", url, err)
	}
	return resp, nil
}
