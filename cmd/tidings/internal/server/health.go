package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// check is one health check. The response has the format of
// k8s.io/apiserver/pkg/server/healthz.
type check struct {
	name string
	err  string // "": ok
	note string // printed if ok
}

// serveLive answers /healthz and /livez: a server that answers is alive. For a cluster
// it also says whether the cluster exists.
func (s *Server) serveLive(w http.ResponseWriter, r *http.Request, rt route) {
	if err := s.clusterError(rt); err != nil {
		failWith(w, err)
		return
	}
	s.writeChecks(w, r, rt, []check{{name: "ping"}})
}

// clusterError is the error of a cluster that does not exist. Health is public, so the
// error does not name the others if callers are authenticated.
func (s *Server) clusterError(rt route) error {
	switch {
	case rt.name == "" || rt.clusterErr == nil:
		return nil
	case s.opts.Gate != nil:
		return publicClusterError(rt, rt.clusterErr)
	}
	return rt.clusterErr
}

// serveReady answers /readyz: whether every resource that was requested by name is
// synced, in all clusters or in one.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request, rt route) {
	if err := s.clusterError(rt); err != nil {
		failWith(w, err)
		return
	}
	status := s.mirror.Status()
	checks := []check{{name: "ping"}, {name: "shutdown"}, {name: "clusters"}}
	if s.draining.Err() != nil {
		checks[1].err = errShutdown.Error()
	}
	if len(status.Clusters) == 0 {
		checks[2].err = "there is none yet"
	}
	if state := s.memory.state(); state != "" {
		checks = append(checks, check{name: "memory", note: state})
	}
	if s.opts.Audit != nil {
		checks = append(checks, check{name: "audit-log", note: auditState(s.opts.Audit.Status())})
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

// writeChecks writes ok or, with ?verbose or if a check failed, the result of each
// check. ?exclude leaves one out, and may be repeated. Names of clusters and resources
// are shown only to callers with the right to monitor; others see only whether all
// checks passed.
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
			fmt.Fprintf(&b, "[-]%s failed: %s\n", c.name, termsafe.Line(c.err))
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
