package server

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/audit"
)

// The annotations of audit events. The first two have the names and values of
// kube-apiserver.
const (
	annotationDecision   = "authorization.k8s.io/decision"
	annotationReason     = "authorization.k8s.io/reason"
	annotationCluster    = "tidings.io/cluster"
	annotationForwarded  = "tidings.io/forwarded"
	annotationRelated    = "tidings.io/related"    // kinds and namespaces of what a tree has shown
	annotationNamespaces = "tidings.io/namespaces" // that a request with visible=true has read
)

// Bounds of what a client decides in an audit event.
const (
	maxAuditURI       = 4096
	maxAuditUserAgent = 1024 // as in kube-apiserver
	maxAuditName      = 256  // valid names are shorter
	maxAuditText      = 4096
)

// audited is a request and its audit event.
type audited struct {
	server  *Server
	request *http.Request // as received
	route   route
	grant   *grant
	event   *auditv1.Event
}

// audit begins the event of a request; nil if there is no audit log. A request that is
// forwarded to the cluster has the same ID in the cluster's own audit log.
func (s *Server) audit(r *http.Request, rt route, g *grant, received time.Time) *audited {
	if s.opts.Audit == nil {
		return nil
	}
	a := &audited{server: s, request: r, route: rt, grant: g, event: audit.NewEvent(received)}
	r.Header.Set(auditv1.HeaderAuditID, string(a.event.AuditID))
	return a
}

// started writes the event of a watch that begins.
func (a *audited) started(code int) {
	if a != nil && a.route.watch && code < http.StatusBadRequest {
		a.write(auditv1.StageResponseStarted, metav1.Status{Code: int32(code)})
	}
}

// ended writes the event of a request that has ended. code is the status that was sent,
// 0 for none; cut says that the response is not complete.
func (a *audited) ended(code int, cut, panicked bool) {
	switch {
	case a == nil:
	case panicked:
		a.write(auditv1.StagePanic, metav1.Status{Code: http.StatusInternalServerError})
	case cut:
		a.write(auditv1.StageResponseComplete, metav1.Status{Code: int32(code), Message: "the response was cut off"})
	case code == 0: // nothing was written, and net/http sends this
		a.write(auditv1.StageResponseComplete, metav1.Status{Code: http.StatusOK})
	default:
		a.write(auditv1.StageResponseComplete, metav1.Status{Code: int32(code)})
	}
}

func (a *audited) write(stage auditv1.Stage, status metav1.Status) {
	g := a.grant
	failed := status.Code >= http.StatusBadRequest
	if a.route.kind == health || a.route.public() && g.caller == nil && (!failed || status.Code == http.StatusServiceUnavailable) {
		return // a health check, or what everybody may see
	}
	e := a.event
	e.Stage, e.StageTimestamp, e.ResponseStatus = stage, metav1.NowMicro(), &status
	a.who()
	a.what(g.authorized)
	if g.caller == nil && e.User.Username == "" && a.server.opts.Gate != nil {
		a.server.opts.Audit.WriteStranger(e)
		return
	}
	a.server.opts.Audit.Write(e)
	if g.second != nil {
		a.what(*g.second)
		a.server.opts.Audit.Write(e)
	}
}

// who describes the caller.
func (a *audited) who() {
	e, g := a.event, a.grant
	if g.caller != nil {
		e.User, e.ImpersonatedUser = g.caller.Users()
	} else if g.reviewer != nil { // refused before it was authenticated
		if known := g.reviewer.Known(g.credentials); known != nil {
			e.User, _ = known.Users()
		}
	}
	// No header is believed about the address: there is no proxy in front that is
	// trusted.
	if addr, err := netip.ParseAddrPort(a.request.RemoteAddr); err == nil {
		e.SourceIPs = []string{addr.Addr().Unmap().String()}
	}
	e.UserAgent = audit.Bounded(g.credentials.Redact(a.request.UserAgent()), maxAuditUserAgent)
}

// what describes the action: the one that was authorized, or that would have been.
func (a *audited) what(of authorized) {
	e, g, rt := a.event, a.grant, a.route
	e.RequestURI = audit.Bounded(g.credentials.Redact(auditURI(a.request.URL, rt)), maxAuditURI)
	attributes := of.attributes
	if attributes.Verb == "" && rt.api != nil {
		attributes = kubernetesAttributes(rt.api)
	}
	if e.Verb = audit.Bounded(attributes.Verb, maxAuditName); e.Verb == "" || rt.kind != objects && rt.kind != kubernetes {
		e.Verb = audit.Bounded(strings.ToLower(a.request.Method), maxAuditName)
	}
	if attributes.Resource != "" {
		name := func(s string) string { return audit.Bounded(g.credentials.Redact(s), maxAuditName) }
		e.ObjectRef = &auditv1.ObjectReference{
			Resource: name(attributes.Resource), Namespace: name(attributes.Namespace), Name: name(attributes.Name),
			APIGroup: name(attributes.Group), APIVersion: name(attributes.Version), Subresource: name(attributes.Subresource),
		}
	}
	e.Annotations = map[string]string{}
	if rt.cluster != nil {
		e.Annotations[annotationCluster] = rt.cluster.Name()
	}
	if d := of.decision; d != nil {
		e.Annotations[annotationDecision] = map[bool]string{true: "allow", false: "forbid"}[d.Allowed]
		e.Annotations[annotationReason] = audit.Bounded(d.Reason, maxAuditText)
	}
	if g.forwarded {
		e.Annotations[annotationForwarded] = "true"
	}
	if g.related != nil {
		e.Annotations[annotationRelated] = audit.Bounded(strings.Join(g.related, ","), maxAuditText)
	}
	if g.visible != nil {
		e.Annotations[annotationNamespaces] = audit.Bounded(strings.Join(g.visible, ","), maxAuditText)
	}
}

// auditedParameters are the parameters of a query that are in audit events. Others may
// hold anything: tokens, what exec runs, what a proxied service is sent.
var auditedParameters = []string{
	// of REST routes, and of reads of the Kubernetes API
	"allowWatchBookmarks", "at", "changes", "columns", "continue", "count", "counts", "descending", "diff", "exclude", "fieldSelector", "filter", "first", "folded", "from", "group", "labelSelector", "limit", "name", "namespace", "neighbours", "objects", "pretty", "resourceVersion",
	"resourceVersionMatch", "sendInitialEvents", "since", "sort", "source", "table", "timeout", "timeoutSeconds", "to", "tree", "until", "verbose", "visible", "watch", "window", "with",
	// of requests that are forwarded
	"container", "dryRun", "fieldManager", "fieldValidation", "follow", "force", "gracePeriodSeconds", "limitBytes", "orphanDependents",
	"previous", "propagationPolicy", "sinceSeconds", "sinceTime", "stderr", "stdin", "stdout", "tailLines", "timestamps", "tty",
}

// auditURI returns the path and query of a request without parameters that may hold
// secrets.
func auditURI(u *url.URL, rt route) string {
	uri := u.EscapedPath()
	if rt.api != nil && (rt.api.Info.Subresource == "proxy" || rt.api.Info.Verb == "proxy") {
		return uri // the query is the service's
	}
	separator := "?"
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		key, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if _, label := labelKey(name); err != nil || strings.Contains(pair, ";") || !label && !slices.Contains(auditedParameters, name) {
			continue
		}
		uri += separator + pair
		separator = "&"
	}
	return uri
}

// allowedWithoutReview is the decision about a request that needs no review.
func allowedWithoutReview(reason string) *access.Decision {
	return &access.Decision{Allowed: true, Reason: reason}
}

// sees notes the namespaces that a request with visible=true reads; nil means all. A
// watch may read others later.
func (g *grant) sees(namespaces []string) {
	if namespaces == nil {
		namespaces = []string{"*"}
	}
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(g.visible, namespaces))))
	g.visible = append([]string{}, all[:min(len(all), maxAuditText)]...) // not nil
}

// auditState is the line of /readyz: a server whose audit log fails is ready
// nevertheless.
func auditState(s audit.Status) string {
	var parts []string
	if s.Err != nil {
		parts = append(parts, "it cannot be written: "+s.Err.Error())
	}
	if missing := s.Dropped + s.Failed; missing > 0 {
		parts = append(parts, fmt.Sprintf("%d events are missing", missing))
	}
	return strings.Join(parts, "; ")
}
