package matrix

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// eventSource does what a browser does with server-sent events: it comes back
// with the id of the last one. One call is one connection.
func eventSource(ctx context.Context, client *http.Client, address string, p *replay) error {
	lastID := ""
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", "text/event-stream")
		if lastID != "" {
			req.Header.Set("Last-Event-ID", lastID)
		} else {
			p.reset()
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			return fmt.Errorf("watch: %s", resp.Status)
		}
		lastID = dispatch(resp.Body, lastID, p)
		resp.Body.Close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lastID == "" {
			return io.ErrUnexpectedEOF
		}
	}
}

// dispatch reads one stream and returns the id of the last event.
func dispatch(body io.Reader, lastID string, p *replay) string {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	id, data, end := lastID, "", false
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			lastID = id
			var m struct {
				Type   string
				Object object
			}
			if data != "" && !end && json.Unmarshal([]byte(data), &m) == nil {
				if m.Type == "RESET" {
					p.reset()
				} else {
					p.event(m.Type, m.Object.Metadata.Name, m.Object.Metadata.ResourceVersion)
				}
			}
			data, end = "", false
		case field == "id":
			id = value
		case field == "event":
			end = value == "end"
		case field == "data":
			data = value
		}
	}
	return lastID
}

// kubeWatch does what an informer does with the Kubernetes API: it lists, and
// watches from there, and goes on from the last version as long as it can.
type kubeWatch struct {
	client  *http.Client
	url     string
	replay  *replay
	version string
}

func (w *kubeWatch) get(ctx context.Context, query url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		if resp.StatusCode == http.StatusGone {
			w.version = ""
		}
		return nil, errors.New(resp.Status)
	}
	return resp, nil
}

// step lists, or watches until the watch ends.
func (w *kubeWatch) step(ctx context.Context) error {
	if w.version == "" {
		return w.list(ctx)
	}
	resp, err := w.get(ctx, url.Values{"watch": {"true"}, "resourceVersion": {w.version}, "allowWatchBookmarks": {"true"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var e struct {
			Type   string
			Object struct {
				object
				Code int
			}
		}
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return err
		}
		switch e.Type {
		case "ERROR":
			if e.Object.Code == http.StatusGone {
				w.version = ""
			}
			return errors.New("an error event")
		case "BOOKMARK":
		default:
			w.replay.event(e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion)
		}
		w.version = e.Object.Metadata.ResourceVersion
	}
}

func (w *kubeWatch) list(ctx context.Context) error {
	resp, err := w.get(ctx, url.Values{"resourceVersion": {"0"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []object
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return err
	}
	w.replay.reset()
	for _, o := range list.Items {
		w.replay.event("ADDED", o.Metadata.Name, o.Metadata.ResourceVersion)
	}
	w.replay.event("SYNCED", "", "")
	w.version = list.Metadata.ResourceVersion
	return nil
}
