package clientgo_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// flaky is an API server of pods behind a cache.ListerWatcher. It keeps to the
// protocol and goes wrong in the ways that the protocol knows.
//
// Versions are multiples of ten and the number of times that the server has been
// restored from a backup: that way no version ever means two states.
type flaky struct {
	noWatchList bool // the client does not know WatchList
	noCache     bool // lists of version 0 come in pages too
	pageSize    int  // 0: all at once

	mu        sync.Mutex
	version   int64
	pods      map[string]*corev1.Pod
	history   []change // since compacted
	compacted int64    // a watch cannot begin before this version
	uids      int
	truth     [][]moment // since the beginning, for each time it was restored
	snapshots []snapshot // of this life, for lists that are not the newest
	streams   []*stream  // open
	faults    []*fault   // of the requests to come
	instant   time.Time  // of the last request
	hail      int        // requests at that instant
}

// moment is the state of the server from a version on.
type moment struct {
	version int64
	state   state
}

// state is identities by key.
type state map[string]string

type snapshot struct {
	version int64
	pods    []*corev1.Pod
}

type change struct {
	version int64
	event   watch.Event
}

func newFlaky() *flaky {
	s := &flaky{version: 10, pods: map[string]*corev1.Pod{}, truth: [][]moment{nil}}
	s.record()
	return s
}

func identity(p *corev1.Pod) string { return string(p.UID) + "@" + p.ResourceVersion }

func key(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64) // "" is 0: none
	return n
}

// record notes the state at the present version, under the lock.
func (s *flaky) record() {
	now, at := state{}, snapshot{version: s.version}
	for _, k := range slices.Sorted(maps.Keys(s.pods)) {
		now[k] = identity(s.pods[k])
		at.pods = append(at.pods, s.pods[k])
	}
	life := &s.truth[len(s.truth)-1]
	*life = append(*life, moment{s.version, now})
	s.snapshots = append(s.snapshots, at)
}

// at is the state of the server at a version.
func (s *flaky) at(version int64) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	life := s.truth[version%10]
	i, found := slices.BinarySearchFunc(life, version, func(m moment, v int64) int { return cmp.Compare(m.version, v) })
	if !found {
		i--
	}
	return life[max(i, 0)].state
}

// newest is the state of the server now.
func (s *flaky) newest() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	life := s.truth[len(s.truth)-1]
	return life[len(life)-1].state
}

// lives is how often the server has been restored, and one.
func (s *flaky) lives() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.truth)
}

// was says whether the server has ever been in a state.
func (s *flaky) was(in state) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.truth, func(life []moment) bool {
		return slices.ContainsFunc(life, func(m moment) bool { return maps.Equal(m.state, in) })
	})
}

// write creates a pod or changes it to a new look; without one it deletes it.
func (s *flaky) write(k, look string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 10
	had, e := s.pods[k], watch.Event{}
	namespace, name, _ := strings.Cut(k, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"look": look}, ResourceVersion: fmt.Sprint(s.version)}}
	switch {
	case had == nil:
		s.uids++
		e.Type, p.UID = watch.Added, types.UID(fmt.Sprint("uid", s.uids))
	case look != "":
		e.Type, p.UID = watch.Modified, had.UID
	default:
		e.Type, p.UID, p.Labels = watch.Deleted, had.UID, had.Labels
	}
	if s.pods[k] = p; e.Type == watch.Deleted {
		delete(s.pods, k)
	}
	e.Object = p
	s.history = append(s.history, change{s.version, e})
	s.record()
	for _, st := range slices.Clone(s.streams) {
		st.send(e)
	}
}

// has says whether there is a pod.
func (s *flaky) has(k string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[k] != nil
}

// elsewhere moves the version on without a change of a pod.
func (s *flaky) elsewhere(bookmark bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 10
	s.record()
	if bookmark {
		for _, st := range slices.Clone(s.streams) {
			if !st.initial {
				st.bookmark(nil)
			}
		}
	}
}

// compact forgets the history: who watches from before must list.
func (s *flaky) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.compacted = nil, s.version
}

// restore goes back to an earlier state, as from a backup. Versions that have
// been given away since are not known any more.
func (s *flaky) restore(back int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.streams) > 0 {
		s.streams[0].end(nil)
	}
	to := s.snapshots[max(len(s.snapshots)-1-back, 0)]
	life := s.truth[len(s.truth)-1]
	life = life[:slices.IndexFunc(life, func(m moment) bool { return m.version == to.version })+1]
	s.pods = map[string]*corev1.Pod{}
	for _, p := range to.pods {
		s.pods[key(p)] = p
	}
	s.truth = append(s.truth, slices.Clone(life))
	s.version = to.version - to.version%10 + 10 + int64(len(s.truth)-1)
	s.history, s.snapshots, s.compacted = nil, nil, s.version
	s.record()
}

// drop ends all streams, with a status or without.
func (s *flaky) drop(status *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.streams) > 0 {
		s.streams[0].end(status)
	}
}

func (s *flaky) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *flaky) fault(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// hailed is how many requests came at one instant last.
func (s *flaky) hailed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hail
}

// receive takes a request and finds out what is to become of it. Too many at one
// instant are the client's fault, and are slowed down so that the test comes to
// say so.
func (s *flaky) receive(ctx context.Context, verb string) (*fault, error) {
	s.mu.Lock()
	out := &fault{after: -1}
	for i, f := range s.faults {
		if f.verb == verb {
			if out = f; f.times > 0 {
				if f.times--; f.times == 0 {
					s.faults = slices.Delete(s.faults, i, i+1)
				}
			}
			break
		}
	}
	if now := time.Now(); now != s.instant {
		s.instant, s.hail = now, 0
	}
	delay := out.delay
	if s.hail++; s.hail > 60 {
		delay = time.Minute
	}
	s.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, out.err
}

func (s *flaky) IsWatchListSemanticsUnSupported() bool { return s.noWatchList }

func (s *flaky) List(metav1.ListOptions) (runtime.Object, error) { panic("there is a context") }

func (s *flaky) Watch(metav1.ListOptions) (watch.Interface, error) { panic("there is a context") }

func (s *flaky) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	f, err := s.receive(ctx, "list")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, start := s.snapshots[len(s.snapshots)-1], 0
	if opts.Continue != "" {
		version, place, _ := strings.Cut(opts.Continue, "/")
		start = int(number(place))
		i := slices.IndexFunc(s.snapshots, func(at snapshot) bool { return at.version == number(version) })
		if number(version) < s.compacted || i < 0 {
			return nil, apierrors.NewResourceExpired("the continue token is too old")
		}
		from = s.snapshots[i]
	} else if opts.ResourceVersion != "" {
		least := number(opts.ResourceVersion)
		if least > s.version {
			return nil, s.tooLarge()
		}
		for back := f.stale; back > 0; back-- { // a cache may be behind, but not further than that
			if i := len(s.snapshots) - 1 - back; i >= 0 && s.snapshots[i].version >= least {
				from = s.snapshots[i]
				break
			}
		}
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(from.version)}}
	rest := from.pods[min(start, len(from.pods)):]
	if paged := s.pageSize > 0 && opts.Limit > 0 && (opts.ResourceVersion != "0" || s.noCache); paged && len(rest) > s.pageSize {
		rest = rest[:s.pageSize]
		list.Continue = fmt.Sprintf("%d/%d", from.version, start+s.pageSize)
	}
	for _, p := range rest {
		list.Items = append(list.Items, *p.DeepCopy())
	}
	return list, nil
}

func (s *flaky) tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

func (s *flaky) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	verb := "watch"
	if opts.SendInitialEvents != nil {
		verb = "watchlist"
	}
	f, err := s.receive(ctx, verb)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := number(opts.ResourceVersion)
	if from > s.version {
		return nil, s.tooLarge()
	}
	st := &stream{server: s, fault: f, events: make(chan watch.Event, 10_000)}
	s.streams = append(s.streams, st)
	st.timer = time.AfterFunc(time.Duration(*opts.TimeoutSeconds)*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.end(nil)
	})
	if f.after == 0 {
		st.end(f.status)
		return st, nil
	}
	if verb == "watchlist" {
		st.sendInitial(slices.SortedFunc(maps.Values(s.pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.UID, b.UID) }))
		return st, nil
	}
	if from < s.compacted || from%10 != s.version%10 {
		st.end(apierrors.NewResourceExpired("too old resource version"))
		return st, nil
	}
	for _, c := range s.history {
		if c.version > from {
			st.send(c.event)
		}
	}
	return st, nil
}
