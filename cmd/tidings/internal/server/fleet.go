package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
)

// publishing is the state of a cluster that the server publishes for other mirrors.
type publishing struct {
	Active    bool   `json:"active"`
	By        string `json:"by,omitempty"` // the other mirror that publishes it
	Problem   string `json:"problem,omitempty"`
	Epoch     string `json:"epoch,omitempty"`
	Messages  uint64 `json:"messages"`
	Bytes     uint64 `json:"bytes"`
	Changes   uint64 `json:"changes"`
	Snapshots uint64 `json:"snapshots"`
}

// following is the state of a cluster that others publish.
type following struct {
	Problem string  `json:"problem,omitempty"`
	Behind  float64 `json:"behind"` // the publisher, in seconds
	Gaps    uint64  `json:"gaps"`   // times that messages were missing
	Epoch   string  `json:"epoch,omitempty"`
	Number  uint64  `json:"number"` // of the last message
}

// fleetCollectors are the metrics of publishing and following.
func (s *Server) fleetCollectors() (all []prometheus.Collector) {
	if s.opts.Publisher != nil {
		all = append(all, s.opts.Publisher)
	}
	if s.opts.Follower != nil {
		all = append(all, s.opts.Follower)
	}
	return all
}

// publishingOf returns the state of publishing a cluster, nil if it is not published.
func (s *Server) publishingOf(name string) *publishing {
	if s.opts.Publisher == nil {
		return nil
	}
	for _, p := range s.opts.Publisher.States() {
		if p.Cluster == name {
			out := &publishing{Active: p.Holds, By: p.Standby, Epoch: p.Epoch, Messages: p.Messages, Bytes: p.Bytes, Changes: p.Changes, Snapshots: p.Snapshots}
			if p.Err != nil {
				out.Problem = p.Err.Error()
			}
			return out
		}
	}
	return &publishing{Problem: "nothing of it is mirrored yet"}
}

// followingOf returns the state of following a cluster, nil if it is not followed.
func (s *Server) followingOf(name string) *following {
	if s.opts.Follower == nil {
		return nil
	}
	for _, f := range s.opts.Follower.States() {
		if f.Cluster == name {
			return &following{Problem: f.Problem, Behind: f.Behind.Round(time.Millisecond).Seconds(), Gaps: f.Gaps, Epoch: f.Epoch, Number: f.Number}
		}
	}
	return nil
}

// publishChecks returns a check of each cluster that is published. A mirror that cannot publish
// can be read nevertheless, so none of them takes it out of service.
func publishChecks(states []fleet.PublishState, cluster string) (checks []check) {
	for _, s := range states {
		if cluster != "" && s.Cluster != cluster {
			continue
		}
		c := check{name: "publish/" + s.Cluster, optional: true}
		switch {
		case s.Err != nil:
			c.err = s.Err.Error()
		case s.Holds:
			c.note = fmt.Sprintf("%d messages", s.Messages)
		case s.Standby != "":
			c.note = "done by " + s.Standby
		default:
			c.note = "about to begin"
		}
		checks = append(checks, c)
	}
	return checks
}
