package mirror

import (
	"sync"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// snapshots holds the states that continue tokens refer to: each for some time
// after its last use, and not more than so many.
type snapshots struct {
	ttl  time.Duration
	most int

	mu   sync.Mutex
	last uint64 // id given out
	byID map[uint64]*snapshot
	same map[moment]*snapshot
}

// moment names a state: lists of the same moment share what is held.
type moment struct {
	keeper          *keeper
	resourceVersion string
}

// snapshot is one state held. All but the id, keeper and view is guarded by
// snapshots.mu.
type snapshot struct {
	id     uint64
	keeper *keeper
	view   *informer.View[*codec.Raw]

	readers int // not to be released under them
	gone    bool
	used    time.Time
	expiry  *time.Timer
}

func newSnapshots(ttl time.Duration, most int) *snapshots {
	return &snapshots{ttl: ttl, most: most, byID: map[uint64]*snapshot{}, same: map[moment]*snapshot{}}
}

// hold takes over a pinned view and returns the id under which to find it.
func (s *snapshots) hold(k *keeper, view *informer.View[*codec.Raw]) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := moment{k, view.ResourceVersion()}
	if have := s.same[at]; have != nil {
		view.Release()
		s.touch(have)
		return have.id
	}
	if k.ctx.Err() != nil { // it is being emptied, and cleared here already
		view.Release()
		return 0
	}
	s.last++
	made := &snapshot{id: s.last, keeper: k, view: view, used: time.Now()}
	// By id: a timer that was stopped may stay with the runtime until it would
	// have fired, and must not keep the state for so long.
	id := made.id
	made.expiry = time.AfterFunc(s.ttl, func() { s.expire(id) })
	s.byID[made.id] = made
	if at.resourceVersion != "" { // else nothing says that another state is the same
		s.same[at] = made
	}
	for len(s.byID) > s.most {
		var oldest *snapshot
		for _, other := range s.byID {
			if oldest == nil || other.used.Before(oldest.used) || other.used.Equal(oldest.used) && other.id < oldest.id {
				oldest = other
			}
		}
		s.remove(oldest)
	}
	return made.id
}

// find returns a snapshot to be read until it is done with, nil if it is not
// held any more.
func (s *snapshots) find(id uint64) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byID[id]
	if found != nil {
		found.readers++
		s.touch(found)
	}
	return found
}

// at is find by the version of the state.
func (s *snapshots) at(k *keeper, resourceVersion string) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.same[moment{k, resourceVersion}]
	if found != nil {
		found.readers++
		s.touch(found)
	}
	return found
}

func (s *snapshots) touch(x *snapshot) {
	x.used = time.Now()
	x.expiry.Reset(s.ttl)
}

// done ends what find began.
func (s *snapshots) done(x *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.readers--
	s.release(x)
}

// expire is called when a snapshot has not been used for some time. The timer
// may have been overtaken by a use.
func (s *snapshots) expire(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.byID[id]; x != nil && time.Since(x.used) >= s.ttl {
		s.remove(x)
	}
}

// clear removes the snapshots of some keepers.
func (s *snapshots) clear(of func(*keeper) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.byID {
		if of(x.keeper) {
			s.remove(x)
		}
	}
}

// remove makes a snapshot not to be found any more. s.mu is held.
func (s *snapshots) remove(x *snapshot) {
	if x.gone {
		return
	}
	x.gone = true
	x.expiry.Stop()
	delete(s.byID, x.id)
	if at := (moment{x.keeper, x.view.ResourceVersion()}); s.same[at] == x {
		delete(s.same, at)
	}
	s.release(x)
}

// release lets go of the state when nobody can come to read it any more.
func (s *snapshots) release(x *snapshot) {
	if x.gone && x.readers == 0 {
		x.view.Release()
	}
}
