package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// fleetWatches are watches of the pods of each cluster at a replica.
type fleetWatches struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	reached [fleetClusters]int64 // the version of the last change
	timing  bool
	took    []float64 // ms of each change since timing began
	ended   error
}

// watch opens the watches.
func (f *fleet) watch(ctx context.Context, r *server) (*fleetWatches, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &fleetWatches{stop: stop}
	for i := range fleetClusters {
		if err := w.open(ctx, r, i); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

func (w *fleetWatches) open(ctx context.Context, r *server, i int) error {
	path := fmt.Sprintf("/clusters/c%03d/api/v1/pods?", i)
	body, err := r.get(path + "limit=1&resourceVersion=0")
	if err != nil {
		return err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	base, err := r.url()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path+"watch=true&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	w.running.Go(func() {
		defer resp.Body.Close()
		err := w.read(i, resp.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ended == nil {
			w.ended = fmt.Errorf("the watch of cluster %d has ended: %w", i, err)
		}
	})
	return nil
}

var (
	versionField = []byte(`"resourceVersion":"`)
	changedField = []byte(`"` + changedAt + `":"`)
)

// digitsAfter returns the number after a field of a watch event.
func digitsAfter(line, field []byte) int64 {
	i := bytes.Index(line, field)
	if i < 0 {
		return 0
	}
	digits, _, _ := bytes.Cut(line[i+len(field):], []byte(`"`))
	n, _ := strconv.ParseInt(string(digits), 10, 64)
	return n
}

func (w *fleetWatches) read(i int, body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		now, version, changed := time.Now().UnixNano(), digitsAfter(lines.Bytes(), versionField), digitsAfter(lines.Bytes(), changedField)
		w.mu.Lock()
		w.reached[i] = max(w.reached[i], version)
		if w.timing && changed > 0 {
			w.took = append(w.took, float64(now-changed)/1e6)
		}
		w.mu.Unlock()
	}
	return lines.Err()
}

// time measures the time of each change for a while, in ms, sorted.
func (w *fleetWatches) time(lasts time.Duration) ([]float64, error) {
	w.mu.Lock()
	w.timing, w.took = true, nil
	w.mu.Unlock()
	time.Sleep(lasts)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timing = false
	slices.Sort(w.took)
	if len(w.took) == 0 && w.ended == nil {
		w.ended = fmt.Errorf("the watches have delivered nothing")
	}
	return w.took, w.ended
}

// have reports whether the watches have delivered what the clusters had at these versions.
func (w *fleetWatches) have(versions [fleetClusters]int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, version := range versions {
		if w.reached[i] < version {
			return fmt.Errorf("cluster %d is at %d, not %d (%v)", i, w.reached[i], version, w.ended)
		}
	}
	return nil
}

func (w *fleetWatches) close() {
	w.stop()
	w.running.Wait()
}

// gate is a way to a server that can be shut.
type gate struct {
	net.Listener
	to string

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func newGate(to string) (*gate, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{Listener: l, to: to}
	go g.run()
	return g, nil
}

func (g *gate) run() {
	for {
		in, err := g.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", g.to)
		g.mu.Lock()
		if err != nil || g.down {
			in.Close()
			if err == nil {
				out.Close()
			}
		} else {
			g.conns = append(g.conns, in, out)
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					in.Close()
					out.Close()
				}()
			}
		}
		g.mu.Unlock()
	}
}

// set opens the gate, or shuts it.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down = !open; g.down {
		for _, c := range g.conns {
			c.Close()
		}
		g.conns = nil
	}
}
