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

// flakyServer is an API server of pods behind a cache.ListerWatcher. It follows
// the protocol and fails in the ways that the protocol allows.
//
// A version is a multiple of ten plus the number of times that the server has
// been restored from a backup, so no version ever means two states.
type flakyServer struct {
	noWatchList bool // the client does not support WatchList
	noCache     bool // lists of version 0 are paginated too
	pageSize    int  // 0 means no pages

	mu        sync.Mutex
	version   int64
	pods      map[string]*corev1.Pod
	history   []change // since the last compaction
	compacted int64    // the oldest version that a watch can start at
	uids      int
	truth     [][]versionedState // all states, by epoch: a restore begins a new one
	snapshots []snapshot         // of this epoch, for stale lists
	streams   []*stream          // open
	faults    []*fault           // of the next requests
	instant   time.Time          // of the last request
	burst     int                // requests at that instant
}

// versionedState is the state of the server from a version on.
type versionedState struct {
	version int64
	state   state
}

// state has identities by key.
type state map[string]string

type snapshot struct {
	version int64
	pods    []*corev1.Pod
}

type change struct {
	version int64
	event   watch.Event
}

func newFlakyServer() *flakyServer {
	s := &flakyServer{version: 10, pods: map[string]*corev1.Pod{}, truth: [][]versionedState{nil}}
	s.record()
	return s
}

func identity(p *corev1.Pod) string { return string(p.UID) + "@" + p.ResourceVersion }

func key(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64) // "" is 0: none
	return n
}

// record records the state at the current version. The caller holds the lock.
func (s *flakyServer) record() {
	now, at := state{}, snapshot{version: s.version}
	for _, k := range slices.Sorted(maps.Keys(s.pods)) {
		now[k] = identity(s.pods[k])
		at.pods = append(at.pods, s.pods[k])
	}
	epoch := &s.truth[len(s.truth)-1]
	*epoch = append(*epoch, versionedState{s.version, now})
	s.snapshots = append(s.snapshots, at)
}

// at returns the state of the server at a version.
func (s *flakyServer) at(version int64) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := s.truth[version%10]
	i, found := slices.BinarySearchFunc(epoch, version, func(m versionedState, v int64) int { return cmp.Compare(m.version, v) })
	if !found {
		i--
	}
	return epoch[max(i, 0)].state
}

// newest returns the current state of the server.
func (s *flakyServer) newest() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := s.truth[len(s.truth)-1]
	return epoch[len(epoch)-1].state
}

// epochs returns how often the server has been restored, plus one.
func (s *flakyServer) epochs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.truth)
}

// was reports whether the server ever had a state.
func (s *flakyServer) was(in state) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.truth, func(epoch []versionedState) bool {
		return slices.ContainsFunc(epoch, func(m versionedState) bool { return maps.Equal(m.state, in) })
	})
}

// write creates a pod or changes its color; without a color it deletes the pod.
func (s *flakyServer) write(k, color string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 10
	had, e := s.pods[k], watch.Event{}
	namespace, name, _ := strings.Cut(k, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"color": color}, ResourceVersion: fmt.Sprint(s.version)}}
	switch {
	case had == nil:
		s.uids++
		e.Type, p.UID = watch.Added, types.UID(fmt.Sprint("uid", s.uids))
	case color != "":
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

// has reports whether a pod exists.
func (s *flakyServer) has(k string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[k] != nil
}

// advance increases the version without a change of a pod.
func (s *flakyServer) advance(bookmark bool) {
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

// compact drops the history: a watch from before needs a list.
func (s *flakyServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.compacted = nil, s.version
}

// restore goes back to an earlier state, as from a backup. Versions assigned
// since are unknown.
func (s *flakyServer) restore(back int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.streams) > 0 {
		s.streams[0].end(nil)
	}
	to := s.snapshots[max(len(s.snapshots)-1-back, 0)]
	epoch := s.truth[len(s.truth)-1]
	epoch = epoch[:slices.IndexFunc(epoch, func(m versionedState) bool { return m.version == to.version })+1]
	s.pods = map[string]*corev1.Pod{}
	for _, p := range to.pods {
		s.pods[key(p)] = p
	}
	s.truth = append(s.truth, slices.Clone(epoch))
	s.version = to.version - to.version%10 + 10 + int64(len(s.truth)-1)
	s.history, s.snapshots, s.compacted = nil, nil, s.version
	s.record()
}

// drop ends all streams, with a status or without.
func (s *flakyServer) drop(status *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.streams) > 0 {
		s.streams[0].end(status)
	}
}

func (s *flakyServer) clearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *flakyServer) fault(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// requestBurst returns the number of requests at the last instant.
func (s *flakyServer) requestBurst() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.burst
}

// receive returns the fault of a request. More than 60 requests at one instant
// are the client's failure; they are delayed so that the test gets to report
// it.
func (s *flakyServer) receive(ctx context.Context, verb string) (*fault, error) {
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
		s.instant, s.burst = now, 0
	}
	delay := out.delay
	if s.burst++; s.burst > 60 {
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

func (s *flakyServer) IsWatchListSemanticsUnSupported() bool { return s.noWatchList }

func (s *flakyServer) List(metav1.ListOptions) (runtime.Object, error) { panic("there is a context") }

func (s *flakyServer) Watch(metav1.ListOptions) (watch.Interface, error) { panic("there is a context") }

func (s *flakyServer) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
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

func (s *flakyServer) tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

func (s *flakyServer) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
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
