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

// meet lets requests of known callers pass, who count as such from then on. One
// without credentials is refused at once. One with credentials that are not known
// waits for the cluster's word on them, in a place that is for strangers only: so
// whoever invents tokens takes no place of a caller.
func (s *Server) meet(r *http.Request) error {
	rt := routeOf(r)
	credentials, err := s.credentials(r)
	public := rt.kind == index || rt.kind == ready
	switch {
	case err != nil:
		return err
	case s.opts.Gate == nil || public && credentials.None():
		return nil
	case credentials.None():
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if rt.nowhere != nil {
		if public {
			return nil
		}
		return nowhere(rt, rt.nowhere)
	}
	reviewer, err := s.opts.Gate.Reviewer(rt.cluster.Connection(), s.mirror.Uses)
	if err != nil {
		return err
	}
	stranger, err := reviewer.IsStranger(credentials)
	if stranger {
		leave, refused := s.strangers.enter(r.Context(), addressOf(r.RemoteAddr))
		if refused != nil {
			return refused
		}
		defer leave()
		err = reviewer.Meet(r.Context(), credentials)
	}
	if public {
		return nil
	}
	return err
}

// addressOf is what strangers share a part of the places by: the address they
// come from or, of version 6, its network, which may be one machine's.
func addressOf(remote string) string {
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

// waitingForOne is how many strangers may wait for each place there is.
const waitingForOne = 64

// strangers bounds the requests of strangers that are under way: in all, and from
// one address, so that it leaves places to others. Those for which there is none
// wait for a time; places that become free go to the addresses in turn.
type strangers struct {
	most, mostOfOne int
	patience        time.Duration

	mu              sync.Mutex
	inside, waiting int
	of              map[string]*address // those that have any
	turns           list.List           // of *address that have some waiting
	refused         uint64
}

type address struct {
	name   string
	inside int
	queue  list.List     // of chan struct{}, closed with a place
	turn   *list.Element // nil: nobody waits
}

func newStrangers(o Options) *strangers {
	return &strangers{most: o.MaxStrangers, mostOfOne: o.MaxStrangersPerAddress, patience: o.StrangerTimeout, of: map[string]*address{}}
}

// enter waits for a place, which the function that is returned gives back.
func (s *strangers) enter(ctx context.Context, from string) (leave func(), err error) {
	a, place, err := s.queue(from)
	if err != nil {
		return nil, err
	}
	leave = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leave(a)
	}
	if place == nil {
		return leave, nil
	}
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	select {
	case <-place.Value.(chan struct{}):
		return leave, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-place.Value.(chan struct{}): // at this very moment
		s.leave(a)
	default:
		s.dequeue(a, place)
		s.forget(a)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.refused++
	return nil, tooManyStrangers()
}

// queue takes a place or, if there is none, one in the queue.
func (s *strangers) queue(from string) (a *address, place *list.Element, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a = s.of[from]; a == nil {
		a = &address{name: from}
		s.of[from] = a
	}
	switch {
	case s.inside < s.most && a.inside < s.mostOfOne:
		s.inside++
		a.inside++
		return a, nil, nil
	case s.waiting >= waitingForOne*s.most || a.queue.Len() >= waitingForOne*s.mostOfOne:
		s.refused++
		s.forget(a)
		return nil, nil, tooManyStrangers()
	}
	s.waiting++
	if a.turn == nil {
		a.turn = s.turns.PushBack(a)
	}
	return a, a.queue.PushBack(make(chan struct{})), nil
}

// leave hands a place on to the next address in turn that may have one more. No
// more addresses are passed over than there are shares of all places.
func (s *strangers) leave(a *address) {
	s.inside--
	a.inside--
	for turn := s.turns.Front(); turn != nil; turn = turn.Next() {
		next := turn.Value.(*address)
		if next.inside >= s.mostOfOne {
			continue
		}
		s.inside++
		next.inside++
		s.turns.MoveToBack(turn)
		place := next.queue.Front()
		s.dequeue(next, place)
		close(place.Value.(chan struct{}))
		break
	}
	s.forget(a)
}

func (s *strangers) dequeue(a *address, place *list.Element) {
	s.waiting--
	if a.queue.Remove(place); a.queue.Len() == 0 {
		s.turns.Remove(a.turn)
		a.turn = nil
	}
}

func (s *strangers) forget(a *address) {
	if a.inside == 0 && a.queue.Len() == 0 {
		delete(s.of, a.name)
	}
}

func (s *strangers) counts() (inside, waiting int, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inside, s.waiting, s.refused
}

func tooManyStrangers() error {
	return apierrors.NewTooManyRequests("too many requests are under way with credentials that are not known yet: come back with yours in a moment", 2)
}
