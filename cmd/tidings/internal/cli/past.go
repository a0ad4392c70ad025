package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// pastAnswer is the answer of a server about the past.
type pastAnswer struct {
	Data            json.RawMessage `json:"data"`
	ResourceVersion string          `json:"resourceVersion"`
	Continue        string          `json:"continue"`
	Moment          *past.Moment    `json:"moment"`
	Gaps            []past.Gap      `json:"gaps"`
	Begin           time.Time       `json:"begin"` // of the history
	Thinned         string          `json:"thinned"`
}

// gapText says when a gap was, and why.
func gapText(g *past.Gap) string {
	if g.To == nil { // which is the reason
		return "nothing is recorded since " + stamp(g.From)
	}
	return fmt.Sprintf("%s from %s to %s: %s", gapMeaning(g), stamp(g.From), stamp(*g.To), g.Reason)
}

// gapMeaning says what a gap means for its time.
func gapMeaning(g *past.Gap) string {
	if g.Late {
		return "changes are recorded late"
	}
	return "nothing is recorded"
}

// stamp formats a time for people.
func stamp(t time.Time) string { return t.Local().Format(time.DateTime) }

// parseAt parses a moment of a flag. A duration becomes a time, so that all requests of a
// command are about the same moment.
func parseAt(flag, value string, now time.Time) (read.Moment, error) {
	m, err := read.ParseMoment(value, now)
	if err != nil {
		return m, fmt.Errorf("--%s: %w", flag, err)
	}
	return m, nil
}

// parseTime is parseAt for a time alone.
func parseTime(flag, value string, now time.Time) (time.Time, error) {
	m, err := parseAt(flag, value, now)
	if err == nil && m.Time.IsZero() {
		err = fmt.Errorf("--%s %s: it is a resourceVersion; give a time, or a duration before now such as -15m", flag, value)
	}
	return m.Time, err
}

// noDemo refuses the demo in this process, which has no past yet.
func (g *globals) noDemo() error {
	if g.demo {
		return errors.New(`--demo: the demo of this command has no past yet; start "tidings serve --demo" and ask it with --server`)
	}
	return nil
}

// askPast makes a REST request about the past.
func askPast(client interface {
	Do(*http.Request) (*http.Response, error)
}, ctx context.Context, u *url.URL, cluster string) (*pastAnswer, error) {
	resp, err := request(ctx, client, u, asObjects, func(resp *http.Response, body []byte) error { return pastRefusal(resp, body, u, cluster) })
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(pastAnswer)
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", u.Redacted(), err)
	}
	if out.Data == nil || out.Moment == nil && out.Gaps == nil {
		return nil, noPast(u, cluster) // it shows the present
	}
	return out, nil
}

// pastRefusal returns the error of a server.
func pastRefusal(resp *http.Response, body []byte, u *url.URL, cluster string) error {
	return refusal(resp, body, func() error { return noPast(u, cluster) })
}

// refusal returns the error of a REST request. other is that of a server which has no
// such routes.
func refusal(resp *http.Response, body []byte, other func() error) error {
	var problem struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Error == "" {
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusForbidden { // an API server has no such path
			return other()
		}
		return statusError(resp, body)
	}
	reason := metav1.StatusReason(problem.Reason)
	switch mirror.Reason(problem.Reason) {
	case mirror.Invalid, mirror.ClusterNeeded:
		reason = metav1.StatusReasonBadRequest
	case mirror.UnknownCluster, mirror.UnknownResource, mirror.NotMirrored:
		reason = metav1.StatusReasonNotFound
	case mirror.Withheld:
		reason = metav1.StatusReasonForbidden
	case mirror.Unreachable, mirror.NotSynced, mirror.Ended:
		reason = metav1.StatusReasonServiceUnavailable
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(resp.StatusCode), Reason: reason, Message: problem.Error,
	}}
}

// noPast is the error of a server that is no "tidings serve".
func noPast(u *url.URL, cluster string) error {
	name := cmp.Or(cluster, u.Host)
	return &uselessError{fmt.Errorf("%s keeps no past: an API server forgets each state as the next one comes", name), `ask a "tidings serve --history DIR" with --server, or read its folder with --history`}
}

// doing adds what was done to an error, unless a server says it.
func doing(err error, format string, args ...any) error {
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		return err
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// restURL returns the URL of a REST request for a resource or an object.
func restURL(base *url.URL, group, version string, path []string, values url.Values) *url.URL {
	segments := []string{cmp.Or(group, "core"), version}
	for _, s := range path {
		segments = append(segments, url.PathEscape(s))
	}
	u := base.JoinPath(segments...)
	u.RawQuery = values.Encode()
	return u
}

// remarks tells on stderr, once each, which moments are shown and what is not known of
// them.
type remarks struct {
	notice func(string)

	mu   sync.Mutex
	told map[string]bool
}

func (r *remarks) tell(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told[text] {
		if r.told == nil {
			r.told = map[string]bool{}
		}
		r.told[text] = true
		r.notice(text)
	}
}

// moment tells which moment of what is shown.
func (r *remarks) moment(what string, at read.Moment, m *past.Moment) {
	if at.Time.IsZero() {
		r.tell(fmt.Sprintf("%s at resourceVersion %s, of %s", what, m.ResourceVersion, stamp(m.Time)))
	} else {
		r.tell(fmt.Sprintf("%s at %s (resourceVersion %s)", what, stamp(at.Time), m.ResourceVersion))
	}
	if m.Gap != nil {
		r.tell(fmt.Sprintf("%s: %s; the state before is shown", what, gapText(m.Gap)))
	}
	r.thinned(what, m.Thinned)
}

func (r *remarks) thinned(what, text string) {
	if text != "" {
		r.tell(what + ": " + text)
	}
}

// pastList yields the objects of a target at a moment, in the order of their keys, a page
// at a time.
func (g *globals) pastList(ctx context.Context, o target, at read.Moment, r *remarks, each func(json.RawMessage) error) error {
	values := url.Values{"limit": {strconv.Itoa(pageSize)}, "at": {at.String()}}
	o.selectInto(values, g)
	for {
		a, err := o.askPast(ctx, values)
		if err != nil {
			return err
		}
		r.moment(o.title(g), at, a.Moment)
		var page []json.RawMessage
		if err := json.Unmarshal(a.Data, &page); err != nil {
			return fmt.Errorf("read the answer of %s: %w", o.cluster.BaseURL().Redacted(), err)
		}
		for _, object := range page {
			if err := each(object); err != nil {
				return err
			}
		}
		if a.Continue == "" {
			return nil
		}
		values.Del("at") // the token has it
		values.Set("continue", a.Continue)
	}
}

// askPast makes a REST request about the past of a target's resource.
func (o target) askPast(ctx context.Context, values url.Values) (*pastAnswer, error) {
	r := o.resource
	return askPast(o.cluster.HTTPClient(), ctx, restURL(o.cluster.BaseURL(), r.Group, r.Version, []string{r.Resource}, values), o.cluster.Name())
}

// selectInto adds what selects the objects of a target.
func (o target) selectInto(values url.Values, g *globals) {
	for key, value := range map[string]string{"namespace": o.namespace, "labelSelector": g.selector, "fieldSelector": o.fieldSelector(g.fieldSelector)} {
		if value != "" {
			values.Set(key, value)
		}
	}
}

// title is what a remark is about.
func (o target) title(g *globals) string {
	s := o.resource.String()
	if o.name != "" {
		s += "/" + o.name
	}
	if g.several {
		s = strings.TrimPrefix(o.cluster.Name()+": ", ": ") + s
	}
	return s
}
