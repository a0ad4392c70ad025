package hostile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// worker makes one request at a time.
type worker struct {
	*run
	theirs *client
	ours   map[*mirror]*client
}

func (r *run) newWorker() *worker {
	w := &worker{run: r, theirs: &client{address: r.server, tls: r.tls}, ours: map[*mirror]*client{}}
	for _, m := range r.mirrors {
		w.ours[m] = &client{address: m.address, tls: m.tls}
	}
	return w
}

func (w *worker) close() {
	w.theirs.close()
	for _, c := range w.ours {
		c.close()
	}
}

// one generates a request, sends it and judges the answers.
func (w *worker) one(rnd *rand.Rand) error {
	m := weighted(rnd, w.mirrors, func(m *mirror) int { return m.weight })
	as := w.local
	if !m.loopback {
		as = pick(rnd, w.anyone...)
		if chance(rnd, 3) {
			as = pick(rnd, w.world.callers[:3]...)
		}
	}
	p := w.gen.plan(rnd)
	x := w.exchange(p.build(w.gen), as, m)
	w.report.count(x)
	if errors.Is(x.theirs.err, errNoConnection) {
		return fmt.Errorf("the API server: %w", x.theirs.err)
	}
	for _, f := range w.world.judge(x, w.options.Bodies) {
		if w.report.known(x, f) {
			w.report.add(x, f)
			continue
		}
		w.report.add(w.shrink(p, x, f), f)
	}
	return nil
}

// shrink removes twists as long as the finding stays the same.
func (w *worker) shrink(p plan, x *exchange, f finding) *exchange {
	for i := 0; i < len(p.twists); {
		less := p.without(i)
		y := w.exchange(less.build(w.gen), x.caller, x.mirror)
		same := false
		for _, g := range w.world.judge(y, w.options.Bodies) {
			same = same || g.kind == f.kind && y.ours.status == x.ours.status && y.theirs.status == x.theirs.status && f.about == g.about
		}
		if !same {
			i++
			continue
		}
		p, x = less, y
	}
	return x
}

// exchange sends the request to both servers.
func (w *worker) exchange(q *request, as *caller, m *mirror) *exchange {
	x := &exchange{q: q, caller: as, mirror: m, info: understand(q), asked: q.ofAPI()}
	if as.all && writes(q.method) && (x.info == nil || !strings.HasPrefix(x.info.Resource, "selfsubject")) {
		// It would be done. A mirror that does not hand it on refuses it.
		if m.passthrough {
			q.method, q.body = "GET", ""
			x.info = understand(q)
		} else {
			x.asked = false
		}
	}
	x.ours = w.ours[m].ask(q, q.bytes(q.target(true), m.address, as.authorization(), as.token))
	if x.asked {
		if m.loopback {
			// Every caller may read all that the mirror may, impersonating or not.
			as, q = w.admin(), q.withoutImpersonation()
		}
		x.theirs = w.theirs.ask(q, q.bytes(q.target(false), w.server, as.authorization(), as.token))
	}
	return x
}

func writes(method string) bool {
	return slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method)
}
