package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
	"github.com/tidings-io/tidings/informer"
)

// check is one health check. The response has the format of
// k8s.io/apiserver/pkg/server/healthz.
type check struct {
	name     string
	err      string // "": ok
	note     string // printed if ok
	optional bool   // is shown, but does not fail the whole
}

// excluded reports whether the request leaves the check out: by its name, or by the
// first part of it.
func (c check) excluded(r *http.Request) bool {
	return slices.ContainsFunc(r.URL.Query()["exclude"], func(name string) bool {
		return name != "" && (c.name == name || strings.HasPrefix(c.name, name+"/"))
	})
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

// serveReady answers /readyz: whether reads of one cluster, or of at least one of all,
// are answered with what the cluster has now. ?exclude=fresh leaves that out: then it is
// enough that there is something to answer with.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request, rt route) {
	if err := s.clusterError(rt); err != nil {
		failWith(w, err)
		return
	}
	checks := []check{{name: "ping"}, {name: "shutdown"}}
	if s.draining.Err() != nil {
		checks[1].err = errShutdown.Error()
	}
	if state := s.memory.state(); state != "" {
		checks = append(checks, check{name: "memory", note: state})
	}
	if s.opts.Audit != nil {
		checks = append(checks, check{name: "audit-log", note: auditState(s.opts.Audit.Status())})
	}
	if s.opts.Reads.History != nil {
		checks = append(checks, check{name: "history", note: historyState(s.opts.Reads.History)})
	}
	var ready, all int
	var ofClusters []check
	for _, c := range s.mirror.Status().Clusters {
		switch {
		case rt.name == "":
			of := checksOf(c, "/"+c.Name)
			if all++; !slices.ContainsFunc(of, func(one check) bool { return one.err != "" && !one.excluded(r) }) {
				ready++
			}
			for i := range of {
				of[i].optional = true // one cluster does not take the others out of service
			}
			ofClusters = append(ofClusters, of...)
		case c.Name == rt.name:
			checks = append(checks, checksOf(c, "")...)
		}
	}
	if rt.name == "" {
		one := check{name: "clusters"}
		switch {
		case all == 0:
			one.err = "there is none yet"
		case ready == 0:
			one.err = "none is ready"
		case all > 1:
			one.note = fmt.Sprintf("%d of %d are ready", ready, all)
		}
		checks = append(append(checks, one), ofClusters...)
	}
	if s.opts.Publisher != nil {
		checks = append(checks, publishChecks(s.opts.Publisher.States(), rt.name)...)
	}
	s.writeChecks(w, r, rt, checks)
}

// checksOf returns the checks of a cluster: whether it has ever been reached, whether
// the resources that were requested by name have been mirrored, and whether all of that
// is fresh. suffix is appended to their names.
func checksOf(c mirror.ClusterStatus, suffix string) []check {
	connection := check{name: "cluster" + suffix}
	fresh := check{name: "fresh" + suffix, err: c.Connection.Problem()}
	if !c.Connection.Reached {
		connection.err = fresh.err
	}
	checks := []check{connection, fresh}
	for _, res := range c.Resources {
		if !res.Required {
			continue
		}
		one := check{name: "mirror" + suffix + "/" + res.Name}
		switch err := failureOf(res); {
		case res.Synced && err != nil && c.Connection.Err == nil: // else it is the connection
			checks = append(checks, check{name: "fresh" + suffix + "/" + res.Name, err: fmt.Sprintf("not watched for %s: %s", time.Since(res.Since).Round(time.Second), cluster.PublicMessage(err))})
		case res.Synced:
		case err != nil:
			one.err = cluster.PublicMessage(err)
		default:
			one.err = fmt.Sprintf("%s, %d objects so far", res.Phase, res.Received)
		}
		checks = append(checks, one)
	}
	return checks
}

// failureOf returns why a resource is not mirrored, or is mirrored and not watched now.
// It is nil if it is watched, or its first list is in progress.
func failureOf(r mirror.ResourceStatus) error {
	if r.Err != nil {
		return r.Err
	}
	switch r.Phase {
	case informer.Waiting, informer.Denied, informer.Gone:
		return r.LastError
	}
	return nil
}

// writeChecks writes ok or, with ?verbose or if a check failed, the result of each
// check. ?exclude leaves some out, and may be repeated. Names of clusters and resources
// are shown only to callers with the right to monitor; others see only whether all
// checks passed.
func (s *Server) writeChecks(w http.ResponseWriter, r *http.Request, rt route, checks []check) {
	query := r.URL.Query()
	var b strings.Builder
	failed := false
	for _, c := range checks {
		switch {
		case c.excluded(r):
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", c.name)
		case c.err == "":
			b.WriteString("[+]" + c.name + " ok")
			if c.note != "" {
				b.WriteString(": " + c.note)
			}
			b.WriteString("\n")
		default:
			failed = failed || !c.optional
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
