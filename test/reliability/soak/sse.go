package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// sse follows a resource by server-sent events as a browser does: it resumes with the
// last id. stay is the time until it disconnects, 0 for never.
type sse struct {
	*replay
	soak *soak
	stay func() time.Duration
	away func() time.Duration // before it reconnects
	drip bool                 // reads slowly

	id string
}

func (c *sse) run(ctx context.Context) error {
	client := c.soak.client(c.drip)
	defer client.CloseIdleConnections()
	random := rand.New(rand.NewPCG(c.soak.options.Seed, hash(c.name)))
	for ctx.Err() == nil {
		stay, cancel := ctx, context.CancelFunc(func() {})
		if c.stay != nil {
			stay, cancel = context.WithTimeout(ctx, c.stay())
		}
		err := c.watch(stay, client, random)
		cancel()
		c.soak.ended(c.kind, err)
		Sleep(ctx, c.away())
	}
	return nil
}

// watch follows one response.
func (c *sse) watch(ctx context.Context, client *http.Client, random *rand.Rand) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.soak.url+c.resource.own(url.Values{"watch": {"true"}}), nil)
	if err != nil {
		return err
	}
	if c.id != "" {
		req.Header.Set("Last-Event-ID", c.id)
		c.resume(c.id)
	} else {
		c.restart("no id")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode == http.StatusNotFound {
			c.id = "" // the definition is gone, and the objects with it
		}
		return fmt.Errorf("%s", resp.Status)
	}
	var body io.Reader = resp.Body
	if c.drip {
		body = &drip{r: resp.Body, ctx: ctx, random: random}
	}
	lines := bufio.NewReaderSize(body, 64<<10)
	var name, id string
	var data []byte
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		field, value, _ := bytes.Cut(line, []byte(": "))
		switch string(field) {
		case "id":
			id = string(value)
		case "event":
			name = string(value)
		case "data":
			data = append(data, value...)
		case "":
			if len(line) > 0 {
				continue // a comment
			}
			if id != "" {
				c.id = id
			}
			if err := c.block(ctx, name, data); err != nil {
				return err
			}
			name, id, data = "", "", data[:0]
		}
	}
}

// block is one event, or a position only.
func (c *sse) block(ctx context.Context, name string, data []byte) error {
	if name == "end" {
		return fmt.Errorf("ended: %s", data)
	}
	if len(data) > 0 {
		var e struct {
			Type   string `json:"type"`
			Object thing  `json:"object"`
		}
		if err := json.Unmarshal(data, &e); err != nil {
			c.mu.Lock()
			c.mismatch("got invalid JSON: %v: %.200s", err, data)
			c.mu.Unlock()
			return err
		}
		switch e.Type {
		case "RESET":
			c.restart("RESET")
		case "SYNCED":
			c.synced()
		default:
			c.event(e.Type, e.Object.key(), e.Object.Metadata.ResourceVersion)
		}
	}
	if c.id != "0" && !strings.Contains(c.id, ".") {
		c.reached(ctx, number(c.id), true)
	}
	return nil
}

// drip is a slow reader: it reads slowly for a while, then catches up for a while.
type drip struct {
	r      io.Reader
	ctx    context.Context
	random *rand.Rand
	turn   time.Time
	fast   bool
}

// Read implements [io.Reader].
func (d *drip) Read(p []byte) (int, error) {
	if now := time.Now(); now.After(d.turn) {
		d.fast = !d.fast
		d.turn = now.Add(between(d.random, 10*time.Second, 30*time.Second))
	}
	if !d.fast {
		if len(p) > 4<<10 {
			p = p[:4<<10]
		}
		Sleep(d.ctx, 200*time.Millisecond)
	}
	return d.r.Read(p)
}
