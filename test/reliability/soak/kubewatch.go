package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// kubeWatch lists and watches by the Kubernetes API as a reflector does, and resumes
// as long as the server accepts it.
type kubeWatch struct {
	*replay
	soak     *soak
	metadata bool                 // only
	initial  bool                 // lists by a watch (sendInitialEvents)
	drip     bool                 // reads slowly
	away     func() time.Duration // before it reconnects
	at       func() string        // the URL of the server of the next round; nil: that of the soak

	version uint64 // all events up to it are known; 0: start over
}

// errExpired is a 410.
var errExpired = errors.New("410")

func (c *kubeWatch) run(ctx context.Context) error {
	client := c.soak.client(c.drip)
	defer client.CloseIdleConnections()
	random := rand.New(rand.NewPCG(c.soak.options.Seed, hash(c.name)))
	for ctx.Err() == nil {
		err := c.round(ctx, client, random)
		switch {
		case errors.Is(err, errExpired), err != nil && c.initial && !c.done():
			c.version = 0
		}
		c.soak.ended(c.kind, err)
		if errors.Is(err, errExpired) {
			Sleep(ctx, 500*time.Millisecond) // then lists again
			continue
		}
		Sleep(ctx, c.away())
	}
	return nil
}

func (c *kubeWatch) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

func (c *kubeWatch) accept(list bool) string {
	if !c.metadata {
		return "application/json"
	}
	if list {
		return "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
	return "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
}

// round makes a list, if there is no version to resume from, and a watch.
func (c *kubeWatch) round(ctx context.Context, client *http.Client, random *rand.Rand) error {
	base := c.soak.url
	if c.at != nil {
		base = c.at()
	}
	timeout := 5 + random.IntN(40)
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(timeout)}}
	switch {
	case c.version != 0:
		c.resume(fmt.Sprint(c.version))
		query.Set("resourceVersion", fmt.Sprint(c.version))
	case c.initial:
		c.restart("a new list, streamed")
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	default:
		c.restart("a new list")
		has, version, err := c.soak.list(ctx, client, base+c.resource.path(url.Values{"resourceVersion": {"0"}}), c.accept(true))
		if err != nil {
			return err
		}
		c.replace(has, version)
		c.reached(ctx, version, true)
		c.version = version
		query.Set("resourceVersion", fmt.Sprint(version))
	}
	stay, cancel := ctx, context.CancelFunc(func() {})
	if random.IntN(2) == 0 { // disconnect instead of waiting for the end
		stay, cancel = context.WithTimeout(ctx, between(random, time.Second, 30*time.Second))
	}
	defer cancel()
	req, err := http.NewRequestWithContext(stay, http.MethodGet, base+c.resource.path(query), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", c.accept(false))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusGone, http.StatusNotFound:
		return fmt.Errorf("%s: %w", resp.Status, errExpired)
	default:
		return fmt.Errorf("%s", resp.Status)
	}
	var body io.Reader = resp.Body
	if c.drip {
		body = &drip{r: resp.Body, ctx: stay, random: random}
	}
	for decoder := json.NewDecoder(body); ; {
		var e struct {
			Type   string `json:"type"`
			Object thing  `json:"object"`
		}
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		version := e.Object.Metadata.ResourceVersion
		switch e.Type {
		case "ERROR":
			if e.Object.Code == http.StatusGone {
				return errExpired
			}
			return fmt.Errorf("in the stream: %d %s", e.Object.Code, e.Object.Message)
		case "BOOKMARK":
			c.synced() // the end of a streamed list
			c.reached(stay, version, false)
		default:
			c.event(e.Type, e.Object.key(), version)
		}
		if c.done() {
			c.version = version
		}
	}
}
