package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/internal/plain"
)

// check is one thing that must be well. Its answer is as an API server writes it
// (k8s.io/apiserver/pkg/server/healthz).
type check struct {
	name string
	err  string // "" is well
	note string // of what is well
}

// serveAlive answers /healthz and /livez: who answers is alive. Those of a cluster
// say that there is such a cluster.
func (s *Server) serveAlive(w http.ResponseWriter, r *http.Request, rt route) {
	if err := s.isThere(rt); err != nil {
		failWith(w, err)
		return
	}
	s.writeChecks(w, r, rt, []check{{name: "ping"}})
}

// isThere is the error of a cluster that is not there. Everybody may ask for its
// health, so it does not name those that are if callers are authenticated.
func (s *Server) isThere(rt route) error {
	switch {
	case rt.name == "" || rt.nowhere == nil:
		return nil
	case s.opts.Gate != nil:
		return nowhere(rt, rt.nowhere)
	}
	return rt.nowhere
}

// serveReady answers /readyz: whether every resource that was asked for by name
// is mirrored, in all clusters or in one.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request, rt route) {
	if err := s.isThere(rt); err != nil {
		failWith(w, err)
		return
	}
	status := s.mirror.Status()
	checks := []check{{name: "ping"}, {name: "shutdown"}, {name: "clusters"}}
	if s.draining.Err() != nil {
		checks[1].err = errShutdown.Error()
	}
	if len(status.Clusters) == 0 {
		checks[2].err = "there are none yet"
	}
	if state := s.memory.state(); state != "" {
		checks = append(checks, check{name: "memory", note: state})
	}
	for _, c := range status.Clusters {
		if rt.name != "" && c.Name != rt.name {
			continue
		}
		for _, res := range c.Resources {
			if !res.Required {
				continue
			}
			one := check{name: "mirror/" + c.Name + "/" + res.Name}
			if rt.name != "" {
				one.name = "mirror/" + res.Name
			}
			switch {
			case res.Synced:
			case res.Err != nil:
				one.err = res.Err.Error()
			default:
				one.err = fmt.Sprintf("%s, %d objects so far", res.Phase, res.Received)
			}
			checks = append(checks, one)
		}
	}
	s.writeChecks(w, r, rt, checks)
}

// writeChecks says ok, or with ?verbose or if something is wrong what of each
// check. ?exclude leaves one out, and may be repeated. The names of clusters and
// resources are for callers who may see how the mirror is doing; others are told
// only whether all is well.
func (s *Server) writeChecks(w http.ResponseWriter, r *http.Request, rt route, checks []check) {
	query := r.URL.Query()
	var b strings.Builder
	failed := false
	for _, c := range checks {
		switch {
		case slices.Contains(query["exclude"], c.name):
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", c.name)
		case c.err == "":
			b.WriteString("[+]" + c.name + " ok")
			if c.note != "" {
				b.WriteString(": " + c.note)
			}
			b.WriteString("\n")
		default:
			failed = true
			fmt.Fprintf(&b, "[-]%s failed: %s\n", c.name, plain.Line(c.err))
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache, private")
	name := rt.pattern[strings.LastIndex(rt.pattern, "/")+1:]
	if !s.mayMonitor(r) {
		b.Reset()
	}
	if failed {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(&b, "%s check failed\n", name)
		_, _ = w.Write([]byte(b.String()))
		return
	}
	if _, verbose := query["verbose"]; !verbose {
		_, _ = w.Write([]byte("ok"))
		return
	}
	fmt.Fprintf(&b, "%s check passed\n", name)
	_, _ = w.Write([]byte(b.String()))
}
