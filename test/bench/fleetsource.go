package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// Placeholders in the frames of a source, of the width of what replaces them.
var (
	versionPlace = []byte(`"7777777777"`)
	timePlace    = []byte(`"5555555555555555555"`)
)

// sources are simulated clusters, all with the same real pods, below /0, /1 and so on. They cost as little as
// possible: what they send is encoded once. Each change sets the version of a pod and the time of the change.
type sources struct {
	pods      []frame
	discovery http.Handler
	clusters  []simulated
	rate      atomic.Int64 // changes a second of each cluster; 0: none
	packed    float64      // bytes of a change, compressed with zstd alone; the mean
	address   string
	server    *http.Server
}

// simulated is one of them.
type simulated struct {
	version atomic.Int64 // of its last change
	next    atomic.Int64 // pod to change
}

// frame is a watch event with places for its version and time.
type frame struct {
	line          []byte
	version, time int
}

// fill returns the frame with a version and a time, in a buffer.
func (f *frame) fill(buf []byte, version int64, at time.Time) []byte {
	buf = append(buf[:0], f.line...)
	copy(buf[f.version+1:], fmt.Sprintf("%010d", version))
	copy(buf[f.time+1:], fmt.Sprintf("%019d", at.UnixNano()))
	return buf
}

const changedAt = "bench/changed-at"

// What an object is between in a watch event.
const eventStart, eventEnd = `{"type":"MODIFIED","object":`, "}\n"

// firstVersion has as many digits as all that follow.
const firstVersion = 1_000_000_000

// startSources starts this many clusters, of this many pods each.
func startSources(clusters, pods int) (*sources, error) {
	s := &sources{discovery: fakeapi.New(fakeapi.Options{}), clusters: make([]simulated, clusters)}
	packer, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	for pod := range samplepods.All(pods, 1) {
		pod.TypeMeta, pod.ManagedFields = podType, nil
		pod.ResourceVersion = strings.Trim(string(versionPlace), `"`)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[changedAt] = strings.Trim(string(timePlace), `"`)
		line, err := watchLine("MODIFIED", pod)
		if err != nil {
			return nil, err
		}
		f := frame{line: line, version: bytes.Index(line, versionPlace), time: bytes.Index(line, timePlace)}
		if f.version < 0 || f.time < 0 {
			return nil, fmt.Errorf("pod %s has no place for its version", pod.Name)
		}
		s.pods = append(s.pods, f)
		s.packed += float64(len(packer.EncodeAll(f.fill(nil, firstVersion, time.Now()), nil))) / float64(pods)
	}
	for i := range s.clusters {
		s.clusters[i].version.Store(firstVersion)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.address = listener.Addr().String()
	s.server = &http.Server{Handler: s}
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

// ServeHTTP implements [http.Handler]. PUT /rate/N makes each cluster change N pods a second, GET /changes
// returns how many there were, how many requests for pods, and the bytes of one.
func (s *sources) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	number, path, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	switch number {
	case "rate":
		rate, err := strconv.ParseInt(path, 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.rate.Store(rate)
		return
	case "versions":
		fmt.Fprintln(w, s.packed)
		for i := range s.clusters {
			fmt.Fprintln(w, s.clusters[i].version.Load())
		}
		return
	}
	i, err := strconv.Atoi(number)
	if err != nil || i >= len(s.clusters) {
		http.NotFound(w, req)
		return
	}
	if path != "api/v1/pods" {
		http.StripPrefix("/"+number, s.discovery).ServeHTTP(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch q := req.URL.Query(); {
	case q.Get("sendInitialEvents") == "true":
		http.Error(w, "a source knows lists and watches", http.StatusUnprocessableEntity)
	case q.Get("watch") == "true":
		s.watch(w, req, &s.clusters[i], i)
	default:
		s.list(w, &s.clusters[i])
	}
}

// list answers a list of all pods.
func (s *sources) list(w io.Writer, c *simulated) {
	out := bufio.NewWriterSize(w, 1<<16)
	defer out.Flush()
	version := c.version.Load()
	fmt.Fprintf(out, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[`, version)
	var buf []byte
	for i := range s.pods {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		buf = s.pods[i].fill(buf, version, time.Now())
		_, _ = out.Write(buf[len(eventStart) : len(buf)-len(eventEnd)])
	}
	_, _ = out.WriteString("]}")
}

// watch answers a watch of pods with the changes from now on.
func (s *sources) watch(w http.ResponseWriter, req *http.Request, c *simulated, number int) {
	out := http.NewResponseController(w)
	_ = out.Flush()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var buf []byte
	begun, made := time.Now().Add(-time.Duration(number)*time.Millisecond/10), int64(0) // not all at the same moment
	for last := int64(0); ; {
		select {
		case <-req.Context().Done():
			return
		case <-tick.C:
		}
		rate := s.rate.Load()
		if rate != last {
			begun, made, last = time.Now().Add(-time.Duration(number)*time.Second/time.Duration(max(rate, 1)*int64(len(s.clusters)))), 0, rate
		}
		due := int64(time.Since(begun).Seconds() * float64(rate))
		if due == made {
			continue
		}
		for ; made < due; made++ {
			buf = s.pods[int(c.next.Add(1)*7919)%len(s.pods)].fill(buf, c.version.Add(1), time.Now())
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
		_ = out.Flush()
	}
}
