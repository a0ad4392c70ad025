package hostile

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// exchange is one request with the answers of the mirror and the API server.
type exchange struct {
	q      *request
	caller *caller
	mirror *mirror
	ours   answer
	theirs answer
	asked  bool                    // whether the API server got it
	info   *apirequest.RequestInfo // as parsed by the API server; nil: it cannot be parsed
}

// kind of a finding, the worst first.
type kind int

const (
	leaked kind = iota
	foreign
	failed
	silent
	otherObjects
	otherStatus
	otherHeader
	otherBody
)

func (k kind) String() string {
	return [...]string{
		"a canary was shown that this caller must not see", "a request was answered that a page of another origin makes", "a server error", "no answer",
		"other objects than the API server's", "another status than the API server's", "another header than the API server's", "another body than the API server's",
	}[k]
}

// finding is a defect of an answer.
type finding struct {
	kind   kind
	detail string
	about  string // what else distinguishes it
}

// tooShort is a timeout that some requests exceed and some do not, at either server.
const tooShort = "timeout=1ms"

// understand parses a request as the API server does.
func understand(q *request) *apirequest.RequestInfo {
	u, err := url.ParseRequestURI(q.target(false))
	if err != nil {
		return nil
	}
	info, err := infos.NewRequestInfo(&http.Request{Method: q.method, URL: u})
	if err != nil {
		return nil
	}
	return info
}

// judge returns the findings of an exchange. bodies includes bodies and headers of
// refusals.
func (w *world) judge(x *exchange, bodies bool) (out []finding) {
	add := func(k kind, about, format string, args ...any) {
		out = append(out, finding{k, fmt.Sprintf(format, args...), about})
	}
	shown := canariesIn(x.ours.text())
	sent := canariesIn(x.q.target(true))
	for _, c := range shown {
		p, ok := w.canaries[c]
		if !ok || slices.Contains(sent, c) {
			continue
		}
		if !x.caller.sees(p) || x.mirror.withoutSecrets && !x.mirror.passthrough && p.resource.plural == "secrets" {
			add(leaked, p.resource.plural, "%s", p)
			break
		}
	}
	if x.mirror.loopback && x.ours.status == http.StatusSwitchingProtocols && x.q.origin {
		add(foreign, "WebSocket", "a WebSocket")
	}
	if x.mirror.loopback && x.q.host != "" && x.ours.status != http.StatusForbidden && x.ours.status != http.StatusBadRequest && x.ours.status != http.StatusExpectationFailed {
		add(foreign, "Host", "addressed to %s", x.q.host)
	}
	if x.ours.status == 0 {
		if !x.asked || x.theirs.status != 0 {
			add(silent, "", "%v", x.ours.err)
		}
		return out
	}
	if slices.ContainsFunc(differences, func(d difference) bool { return d.applies(x) }) {
		return out
	}
	if x.ours.status >= 500 && (!x.asked || x.theirs.status < 500) && !slices.Contains(x.q.query, tooShort) {
		add(failed, "", "")
	}
	switch {
	case !x.asked || x.theirs.status == 0 || slices.Contains(x.q.query, tooShort):
	case x.ours.status != x.theirs.status:
		add(otherStatus, "", "")
	case x.ours.status == http.StatusOK && x.ours.whole && x.theirs.whole && !x.q.watch:
		if theirs := canariesIn(x.theirs.text()); !slices.Equal(shown, theirs) {
			add(otherObjects, "", "%d canaries, and %d of the API server", len(shown), len(theirs))
		}
	case bodies && x.ours.status >= 400:
		for _, name := range []string{"Content-Type", "Cache-Control", "Vary", "Retry-After", "Allow", "Location", "Www-Authenticate", "Warning"} {
			if ours, theirs := x.ours.header.Values(name), x.theirs.header.Values(name); !slices.Equal(ours, theirs) {
				add(otherHeader, name, "%s: %q, and %q of the API server", name, ours, theirs)
			}
		}
		if !bytes.Equal(x.ours.body, x.theirs.body) {
			add(otherBody, "", "")
		}
	}
	return out
}

// first returns the beginning of a body, on one line.
func first(body []byte) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), 2000)]), "�")), " ")
	if len(s) > 500 {
		s = s[:500] + "…"
	}
	return s
}
