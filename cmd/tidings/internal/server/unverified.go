package server

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// verify reads a request's credentials. It refuses a request without credentials,
// and has unverified credentials verified by the cluster. Those requests have seats
// of their own, so that a client that invents tokens takes no seat from a caller.
func (s *Server) verify(r *http.Request) (err error) {
	rt, g := routeOf(r), grantOf(r)
	if rt.kind == health { // always public
		return nil
	}
	if g.credentials, err = s.credentials(r); err != nil {
		return err
	}
	switch {
	case s.opts.Gate == nil || rt.public() && (g.credentials.Empty() || rt.clusterErr != nil):
		return nil
	case g.credentials.Empty():
		return apierrors.NewUnauthorized("Unauthorized")
	case rt.clusterErr != nil:
		return publicClusterError(rt, rt.clusterErr)
	}
	if g.reviewer, err = s.opts.Gate.Reviewer(rt.cluster.Connection(), s.mirror.Uses); err != nil {
		return err
	}
	unverified, err := g.reviewer.IsUnverified(g.credentials)
	if unverified {
		release, refused := s.unverified.acquire(r.Context(), addressGroup(r.RemoteAddr))
		if refused != nil {
			return refused
		}
		defer release()
		ctx := r.Context()
		if rt.public() {
			limited, cancel := context.WithTimeout(ctx, pagePatience)
			defer cancel()
			ctx = limited
		}
		err = g.reviewer.Verify(ctx, g.credentials)
	}
	switch {
	case err == nil:
	case rt.public():
		g.reviewer = nil // the page is that for everybody
	default:
		return err
	}
	return nil
}

// addressGroup returns what unverified requests share seats by: the IPv4 address
// that they come from or, for IPv6, the /64 network, which may be one machine's.
func addressGroup(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		network, _ := ip.Prefix(64)
		return network.String()
	}
	return ip.String()
}

// queuePerSeat is how many unverified requests may wait for each seat.
const queuePerSeat = 64

// unverifiedLimiter bounds the unverified requests in flight, in all and from one
// address. More requests wait for a time; seats that become free go to the waiting
// addresses in turn.
type unverifiedLimiter struct {
	max, maxPerAddress int
	timeout            time.Duration

	mu              sync.Mutex
	active, waiting int
	addresses       map[string]*addressQueue // those with active or waiting requests
	turns           list.List                // of *addressQueue with waiting requests
	refused         uint64
}

type addressQueue struct {
	name    string
	active  int
	waiting list.List     // of chan struct{}, which closes when the request gets a seat
	turn    *list.Element // in turns; nil: no request waits
}

func newUnverifiedLimiter(o Options) *unverifiedLimiter {
	return &unverifiedLimiter{max: o.MaxUnverified, maxPerAddress: o.MaxUnverifiedPerAddress, timeout: o.UnverifiedTimeout, addresses: map[string]*addressQueue{}}
}

// acquire waits for a seat, which release returns.
func (l *unverifiedLimiter) acquire(ctx context.Context, address string) (release func(), err error) {
	a, waiter, err := l.enqueue(address)
	if err != nil {
		return nil, err
	}
	release = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release(a)
	}
	if waiter == nil {
		return release, nil
	}
	timer := time.NewTimer(l.timeout)
	defer timer.Stop()
	select {
	case <-waiter.Value.(chan struct{}):
		return release, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-waiter.Value.(chan struct{}): // got a seat at the last moment
		l.release(a)
	default:
		l.dequeue(a, waiter)
		l.remove(a)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.refused++
	return nil, tooManyUnverified()
}

// enqueue takes a seat or, if there is none, queues a waiter.
func (l *unverifiedLimiter) enqueue(address string) (a *addressQueue, waiter *list.Element, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a = l.addresses[address]; a == nil {
		a = &addressQueue{name: address}
		l.addresses[address] = a
	}
	switch {
	case l.active < l.max && a.active < l.maxPerAddress:
		l.active++
		a.active++
		return a, nil, nil
	case l.waiting >= queuePerSeat*l.max || a.waiting.Len() >= queuePerSeat*l.maxPerAddress:
		l.refused++
		l.remove(a)
		return nil, nil, tooManyUnverified()
	}
	l.waiting++
	if a.turn == nil {
		a.turn = l.turns.PushBack(a)
	}
	return a, a.waiting.PushBack(make(chan struct{})), nil
}

// release passes a seat on to the next address in turn that may have one more. It
// skips only addresses with all of their seats; there are at most max/maxPerAddress.
func (l *unverifiedLimiter) release(a *addressQueue) {
	l.active--
	a.active--
	for turn := l.turns.Front(); turn != nil; turn = turn.Next() {
		next := turn.Value.(*addressQueue)
		if next.active >= l.maxPerAddress {
			continue
		}
		l.active++
		next.active++
		l.turns.MoveToBack(turn)
		waiter := next.waiting.Front()
		l.dequeue(next, waiter)
		close(waiter.Value.(chan struct{}))
		break
	}
	l.remove(a)
}

func (l *unverifiedLimiter) dequeue(a *addressQueue, waiter *list.Element) {
	l.waiting--
	if a.waiting.Remove(waiter); a.waiting.Len() == 0 {
		l.turns.Remove(a.turn)
		a.turn = nil
	}
}

// remove forgets an address without active or waiting requests.
func (l *unverifiedLimiter) remove(a *addressQueue) {
	if a.active == 0 && a.waiting.Len() == 0 {
		delete(l.addresses, a.name)
	}
}

func (l *unverifiedLimiter) counts() (active, waiting int, refused uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active, l.waiting, l.refused
}

func tooManyUnverified() error {
	return apierrors.NewTooManyRequests("too many requests with unverified credentials are in flight; try again", 2)
}
