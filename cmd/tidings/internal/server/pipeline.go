package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/internal/informerapi"
)

// pipeline says how the changes of a resource come from the API server, and how far they
// have got to those who read them.
type pipeline struct {
	Since           time.Time    `json:"since,omitzero"`   // when the phase began
	Contact         time.Time    `json:"contact,omitzero"` // when the API server last sent something
	Retry           time.Time    `json:"retry,omitzero"`   // when a request that failed is repeated
	ResourceVersion string       `json:"resourceVersion,omitempty"`
	Bytes           int64        `json:"bytes"`    // of the objects in memory
	Changes         uint64       `json:"changes"`  // of the store so far
	Retained        uint64       `json:"retained"` // changes that watches can resume from
	Requests        requestCount `json:"requests"` // put to the API server to mirror this
	LastFailure     *failure     `json:"lastFailure,omitempty"`
	Watches         watchesState `json:"watches"`
	History         *historyOf   `json:"history,omitempty"`
}

type requestCount struct {
	Lists   uint64 `json:"lists"` // complete ones; all but the first are relists
	Watches uint64 `json:"watches"`
	Failed  uint64 `json:"failed"`
}

type failure struct {
	Error string    `json:"error"`
	Time  time.Time `json:"time"`
}

// watchesState is about the watches served and the tables that the page shows.
type watchesState struct {
	Open   int           `json:"open"`
	Behind []behindState `json:"behind,omitempty"` // those that are not up to date, the slowest first
}

// behindState is a watch that has not received all changes yet.
type behindState struct {
	Changes uint64    `json:"changes"`
	Since   time.Time `json:"since,omitzero"` // when the first of those came
	Folded  uint64    `json:"folded,omitempty"`
}

// historyOf is the history of a resource.
type historyOf struct {
	Begin    time.Time `json:"begin"`
	Seen     time.Time `json:"seen"` // up to when it is known to be complete
	Versions uint64    `json:"versions"`
	Gaps     int       `json:"gaps"` // that it has
	LastGap  *past.Gap `json:"lastGap,omitempty"`
	Failing  string    `json:"failing,omitempty"`
}

// mostBehind is the number of slow watches that are listed.
const mostBehind = 20

func (s *Server) pipelineOf(clusterName string, r mirror.ResourceStatus) *pipeline {
	p := &pipeline{
		Since: r.Since, Contact: r.LastContact, Retry: r.Retry, ResourceVersion: r.ResourceVersion, Bytes: r.Bytes, Changes: r.Events,
		Requests: requestCount{Lists: r.Lists, Watches: r.Watches, Failed: r.Errors},
	}
	if r.LastError != nil {
		p.LastFailure = &failure{Error: cluster.PublicMessage(r.LastError), Time: r.LastErrorTime}
	}
	progress := r.Progress()
	p.Retained, p.Watches = progress.Retained, watchesOf(progress.Readers)
	p.History = s.historyOf(clusterName, r)
	return p
}

func watchesOf(readers []informerapi.Reader) watchesState {
	out := watchesState{Open: len(readers)}
	for _, r := range readers {
		if r.Lag > 0 {
			out.Behind = append(out.Behind, behindState{Changes: r.Lag, Since: r.Since, Folded: r.Folded})
		}
	}
	slices.SortFunc(out.Behind, func(a, b behindState) int { return cmp.Compare(b.Changes, a.Changes) })
	out.Behind = out.Behind[:min(len(out.Behind), mostBehind)]
	return out
}

// historyOf returns the state of the history that is being written of a resource, nil if
// there is none.
func (s *Server) historyOf(clusterName string, r mirror.ResourceStatus) *historyOf {
	if s.opts.Reads.History == nil {
		return nil
	}
	for _, series := range s.opts.Reads.History.Store().All() {
		of := series.Of
		if of.Cluster != clusterName || of.Group != r.Resource.Group || of.Version != r.Resource.Version || of.Resource != r.Resource.Resource || of.Namespace != r.Namespace {
			continue
		}
		stats := series.Stats()
		if !stats.Writing {
			continue
		}
		out := &historyOf{Begin: series.Begin(), Versions: stats.Versions}
		out.Seen, _ = series.Seen()
		if gaps := series.Gaps(time.Time{}, time.Now()); len(gaps) > 0 {
			out.Gaps, out.LastGap = len(gaps), gapOf(gaps[len(gaps)-1])
		}
		if stats.Failing != nil {
			out.Failing = stats.Failing.Error()
		}
		return out
	}
	return nil
}

// usage is what the server itself uses.
type usage struct {
	Version      string  `json:"version"`
	Memory       uint64  `json:"memory"` // bytes, as of the last garbage collection
	MemoryLimit  uint64  `json:"memoryLimit,omitempty"`
	Requests     int     `json:"requests"` // in progress
	Watches      int     `json:"watches"`  // and windows, open
	Connections  int64   `json:"connections"`
	HistoryBytes *uint64 `json:"historyBytes,omitempty"` // on disk; absent without a history
}

func (s *Server) usage() usage {
	open, _, _, _ := s.limits.counts()
	u := usage{Version: s.opts.Version, Memory: inUse(), MemoryLimit: s.memory.limit, Requests: open[short], Watches: open[longRunning], Connections: int64(s.connections.Load())}
	if kept := s.opts.Reads.History; kept != nil {
		bytes := kept.Store().DiskUsage()
		u.HistoryBytes = &bytes
	}
	return u
}
