package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// A joint window has the rows of several clusters in one table. The part of each cluster
// is a request of its own, for the window of that cluster: it is limited, authenticated,
// authorized and audited as if the caller had sent it. What differs is that its table is
// not sent, but joined to the others. The joint window itself reads nothing, and lasts
// only as long as one of its parts.

// maxClusters is the number of clusters of a joint window.
const maxClusters = 64

const (
	// partsPatience is how long a joint window waits for all of its clusters before it
	// begins with those that have answered.
	partsPatience = 200 * time.Millisecond
	// clustersEvery is how often it looks for new clusters.
	clustersEvery = 5 * time.Second
)

// isJoint reports whether a request of a route without a cluster is for a joint window.
func isJoint(r *http.Request) bool {
	query := r.URL.Query()
	return isTrue(query.Get("window")) && query.Has("clusters")
}

// joint is a joint window.
type joint struct {
	server  *Server
	request *http.Request
	at      string // the moment of all parts; "": the present
	ctx     context.Context
	running sync.WaitGroup

	mu    sync.Mutex
	parts map[string]*jointPart // by cluster
	stop  context.CancelFunc    // ends the frames of the parts before a change
}

// jointPart is the part of one cluster. joint.mu guards what changes.
type jointPart struct {
	joint  *joint
	cancel context.CancelFunc

	held    *livetable.Held
	seen    *seen
	problem *partProblem // why there is no table
	ended   error        // of an answer that had begun
}

// partProblem is why a cluster has no rows.
type partProblem struct {
	Status int `json:"status"`
	problem
	final bool // it is of no use to try again
}

type partKey struct{}

func partOf(ctx context.Context) *jointPart {
	p, _ := ctx.Value(partKey{}).(*jointPart)
	return p
}

// serveJoint answers with the frames of a joint window.
func (s *Server) serveJoint(w http.ResponseWriter, r *http.Request) {
	if err := s.sendJoint(w, r); err != nil && !clientGone(r) {
		failWith(w, err)
	}
}

// sendJoint returns an error only before anything was sent.
func (s *Server) sendJoint(w http.ResponseWriter, r *http.Request) error {
	p, err := parseParams(r.URL.RawQuery)
	if err != nil {
		return err
	}
	at := p.at
	if at != "" {
		moment, err := read.ParseMoment(at, time.Now())
		if err != nil {
			return err
		}
		if moment.Time.IsZero() {
			return invalid(nil, "at: %.80q is a resourceVersion, which means something else in each cluster: give a time", at)
		}
		at = moment.String()
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	j := &joint{server: s, request: r, at: at, ctx: ctx, parts: map[string]*jointPart{}}
	defer j.running.Wait()
	defer cancel(nil)
	if err := j.follow(p.clusters); err != nil {
		return err
	}
	j.running.Go(func() {
		for ctx.Err() == nil {
			<-waitOr(ctx, clustersEvery)
			_ = j.follow(p.clusters) // without clusters there are no parts
		}
	})
	out := &windowStream{w: w, control: http.NewResponseController(w)}
	begun := time.Now()
	for out.err == nil && ctx.Err() == nil {
		roundCtx, parts, waiting, err := j.round(ctx)
		ready := slices.ContainsFunc(parts, func(p livetable.Part) bool { return p.Held != nil })
		patience := clustersEvery
		switch {
		case !waiting && !ready: // no cluster is left
			if !out.begun {
				return err
			}
			out.end(err)
			return nil
		case waiting && !out.begun:
			if patience = partsPatience - time.Since(begun); !ready {
				patience = clustersEvery
			}
		}
		if ready && (out.begun || !waiting || patience <= 0) {
			if err := j.frames(roundCtx, out, parts, *p.window); mirror.ReasonOf(err) == mirror.Invalid {
				if !out.begun {
					return err
				}
				out.end(err)
				return nil
			}
			if r.Method == http.MethodHead {
				return nil
			}
		} else {
			timer := time.NewTimer(patience)
			select {
			case <-roundCtx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
	return nil
}

// frames sends frames of the parts until one of them changes, or it is time to look for new
// clusters.
func (j *joint) frames(ctx context.Context, out *windowStream, parts []livetable.Part, p livetable.Params) error {
	window, err := livetable.Join(parts, p)
	if err != nil {
		if mirror.ReasonOf(err) != mirror.Invalid {
			<-waitOr(ctx, clustersEvery) // a table has ended, and its part is about to say so
		}
		return err
	}
	defer window.Close()
	if out.begin(); j.request.Method == http.MethodHead {
		return nil
	}
	for out.err == nil {
		frame, err := window.Next(ctx)
		if err != nil {
			if ctx.Err() == nil { // as above
				<-waitOr(ctx, clustersEvery)
			}
			return nil
		}
		if ctx.Err() == nil {
			out.send(frame)
		}
	}
	return nil
}

// waitOr returns a channel that is closed when ctx ends, or after a time.
func waitOr(ctx context.Context, d time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}

// round returns the parts, sorted by cluster, and a context that ends when one of them
// changes. waiting says that some have not answered; err is why one has no table.
func (j *joint) round(ctx context.Context) (_ context.Context, parts []livetable.Part, waiting bool, err error) {
	roundCtx, stop := context.WithCancel(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stop != nil {
		j.stop()
	}
	j.stop = stop
	err = &mirror.Error{Reason: mirror.Ended, Message: "no cluster is left"}
	worst := 0
	for name, p := range j.parts {
		one := livetable.Part{Cluster: name, Held: p.held}
		if p.problem != nil {
			one.Problem = p.problem
			// Whoever is not authenticated is told nothing else.
			if worst == 0 || p.problem.Status == http.StatusUnauthorized {
				worst, err = p.problem.Status, p.problem
			}
		} else if p.held == nil {
			waiting = true
		}
		if p.seen != nil {
			one.Limits = p.seen
		}
		parts = append(parts, one)
	}
	slices.SortFunc(parts, func(a, b livetable.Part) int { return strings.Compare(a.Cluster, b.Cluster) })
	return roundCtx, parts, waiting, err
}

// Error makes the problem of one cluster that of the window, if no cluster is left.
func (p *partProblem) Error() string { return p.problem.Error }

// change changes a part, and ends the frames of the parts before.
func (j *joint) change(do func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do()
	if j.stop != nil {
		j.stop()
	}
}

// matching returns the clusters that names separated by commas name. In a name, * stands
// for any text.
func (s *Server) matching(names string) ([]string, error) {
	all := s.mirror.Clusters()
	var out []string
	for name := range strings.SplitSeq(names, ",") {
		switch {
		case name == "":
			return nil, invalid(nil, "clusters: a name is empty")
		case !strings.Contains(name, "*"):
			out = append(out, name) // if there is none, its part says so
			continue
		}
		parts := strings.Split(name, "*")
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		form, err := regexp.Compile("^(?s:" + strings.Join(parts, ".*") + ")$")
		if err != nil {
			return nil, invalid(nil, "clusters: %.80q: %v", name, err)
		}
		for _, c := range all {
			if form.MatchString(c) {
				out = append(out, c)
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) == 0 || len(out) > maxClusters {
		return nil, invalid(nil, "clusters: %.80q names %d clusters; 1 to %d can be in one table", names, len(out), maxClusters)
	}
	return out, nil
}

// follow starts the parts of clusters that are new, and ends those of clusters that are no
// longer named.
func (j *joint) follow(names string) error {
	wanted, err := j.server.matching(names)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	before := len(j.parts)
	for _, name := range wanted {
		if j.parts[name] == nil && j.ctx.Err() == nil {
			ctx, cancel := context.WithCancel(j.ctx)
			p := &jointPart{joint: j, cancel: cancel}
			j.parts[name] = p
			j.running.Go(func() { p.run(ctx, name) })
		}
	}
	grown := len(j.parts) > before
	for name, p := range j.parts {
		if !slices.Contains(wanted, name) {
			p.cancel()
			delete(j.parts, name)
			grown = true
		}
	}
	if grown && j.stop != nil {
		j.stop()
	}
	return nil
}

// run requests the window of the part's cluster, again and again if that may help.
func (p *jointPart) run(ctx context.Context, name string) {
	defer p.cancel()
	pause := 250 * time.Millisecond
	for ctx.Err() == nil {
		begun := time.Now()
		why := p.request(ctx, name)
		if ctx.Err() != nil {
			return
		}
		if p.joint.change(func() { p.problem = why }); why.final {
			return
		}
		if time.Since(begun) > clustersEvery {
			pause = 250 * time.Millisecond
		}
		<-waitOr(ctx, pause)
		pause = min(2*pause, clustersEvery)
	}
}

// request serves the request of the part, and returns why it has ended.
func (p *jointPart) request(ctx context.Context, name string) *partProblem {
	r := p.joint.request.Clone(context.WithValue(ctx, partKey{}, p))
	query := r.URL.Query()
	if query.Del("clusters"); p.joint.at != "" {
		query.Set("at", p.joint.at)
	}
	r.URL = &url.URL{Path: "/clusters/" + name + r.URL.Path, RawPath: ClusterPath(name) + r.URL.EscapedPath(), RawQuery: query.Encode()}
	answer := &partAnswer{header: http.Header{}}
	func() {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}()
		p.joint.server.handler.ServeHTTP(answer, r)
	}()
	p.joint.mu.Lock()
	defer p.joint.mu.Unlock()
	why := &partProblem{Status: answer.code}
	if answer.code == http.StatusOK || json.Unmarshal(answer.body, &why.problem) != nil {
		if p.ended == nil {
			p.ended = &mirror.Error{Reason: mirror.Ended, Message: "the table of the cluster has ended"}
		}
		code, body, _ := problemOf(p.ended)
		why.Status, why.problem = code, *body
	}
	why.final = why.Status >= 400 && why.Status < 500 && why.Status != http.StatusTooManyRequests && why.Status != http.StatusGone
	return why
}

// partAnswer takes the answer to the request of a part.
type partAnswer struct {
	header http.Header
	code   int
	body   []byte
}

func (a *partAnswer) Header() http.Header { return a.header }

func (a *partAnswer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

func (a *partAnswer) Write(content []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if len(a.body)+len(content) > 1<<20 {
		return 0, errors.New("the answer is too long")
	}
	a.body = append(a.body, content...)
	return len(content), nil
}

// servePart gives the table of an authorized window to the joint window that it is a part
// of, until the caller loses the right or the table ends.
func (s *Server) servePart(ctx context.Context, w http.ResponseWriter, g *grant, p *jointPart) error {
	begun := false
	err := s.eachSeen(ctx, g, func(ctx context.Context, q *read.Query, now *seen) error {
		held, err := s.tables.Hold(ctx, q, *g.params.window)
		if err != nil {
			return err
		}
		defer held.Release()
		if !begun {
			begun = true
			w.WriteHeader(http.StatusOK)
		}
		p.joint.change(func() { p.held, p.seen, p.problem, p.ended = held, now, nil, nil })
		defer p.joint.change(func() { p.held, p.seen = nil, nil })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-held.Done():
			return held.Err()
		}
	})
	if !begun {
		return err
	}
	p.joint.change(func() { p.ended = err })
	return nil
}
