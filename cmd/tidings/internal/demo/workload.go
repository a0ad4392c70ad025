package demo

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Workload chooses what runs in a [Cluster]. The zero value is a good one to
// look at.
type Workload struct {
	// Seed chooses one of many courses of events.
	Seed uint64
	// Speed is how much faster than in real life everything happens. The
	// default is 1, which makes a few changes a second.
	Speed float64
	// Pods is the approximate number of pods. The default is 200.
	Pods int
	// Nodes is the initial number of nodes. The default is one for every 16
	// pods, and at least 3.
	Nodes int
	// EventTTL is how long an Event is kept after it last happened. The
	// default is half an hour of simulated time.
	EventTTL time.Duration
}

func (w Workload) withDefaults() Workload {
	if w.Speed <= 0 {
		w.Speed = 1
	}
	if w.Pods <= 0 {
		w.Pods = 200
	}
	if w.Nodes <= 0 {
		w.Nodes = max(3, w.Pods/16)
	}
	if w.EventTTL <= 0 {
		w.EventTTL = 30 * time.Minute
	}
	return w
}

// pastDays is the age of a cluster when New returns.
const pastDays = 41

// past is how long a cluster has been changing, in simulated time, when New
// returns. Larger clusters change more in less time.
func (w Workload) past() time.Duration {
	return max(time.Minute, 10*time.Minute*200/time.Duration(max(w.Pods, 200)))
}

// Cluster is an API server in memory with a workload.
type Cluster struct {
	*fakeapi.Cluster
	sim *simulation
}

// New makes a cluster and fills it with the workload w. The objects change only
// while [Cluster.Run] runs. The default of opts.History is 500 here. New sets
// opts.SystemNamespace and opts.GracefulPods.
func New(w Workload, opts fakeapi.Options) *Cluster {
	w = w.withDefaults()
	if opts.History <= 0 {
		opts.History = 500
	}
	opts.GracefulPods = true
	// The uid of kube-system commonly identifies a cluster, so it comes from
	// the seed, too.
	var namespaces uint64
	opts.SystemNamespace = func(ns *corev1.Namespace) {
		s := simulation{rng: rand.New(rand.NewPCG(w.Seed, namespaces))}
		namespaces++
		ns.UID = s.uid()
		ns.CreationTimestamp = metav1.NewTime(time.Now().AddDate(0, 0, -pastDays).Truncate(time.Second))
	}
	c := fakeapi.New(opts)
	sim := newSimulation(c, w)
	c.Compact() // the history begins now
	return &Cluster{Cluster: c, sim: sim}
}

// simulation drives a workload: a queue of timed tasks, and controllers that
// react to changes in the store as real ones react to watch events. All of it
// runs in one goroutine at a time, which makes it deterministic.
type simulation struct {
	c   *fakeapi.Cluster
	w   Workload
	rng *rand.Rand

	running sync.Mutex // held by Run

	// Simulated time begins at zero. base is the wall clock's time of its
	// beginning.
	base  time.Time
	clock time.Duration
	tasks taskQueue
	seq   uint64

	controllers
	kubelets
	cloud
	recorder
	activity
}

// newSimulation fills the cluster.
func newSimulation(c *fakeapi.Cluster, w Workload) *simulation {
	s := &simulation{c: c, w: w, rng: rand.New(rand.NewPCG(w.Seed, 0x7469_6469_6e67_73))}
	s.controllers.init()
	s.kubelets.init()
	s.recorder.init()
	s.activity.init()

	// The applications were installed one after the other in the last weeks,
	// and are up. Then the last minutes before now are simulated.
	now := time.Now()
	apps := s.catalog()
	s.jump(now.AddDate(0, 0, -pastDays))
	s.resync()
	s.bootNodes()
	s.pass(time.Minute)
	for i, app := range apps {
		age := time.Duration(pastDays*24*(len(apps)-i)/(len(apps)+1)) * time.Hour
		s.jump(now.Add(-age))
		s.install(app)
		s.pass(2 * time.Minute)
	}
	s.jump(now.Add(-s.real(w.past())))
	s.forgetEvents()
	s.beginHeartbeats()
	s.beginActivity()
	s.pass(w.past())
	s.jump(now)
	return s
}

// Run simulates the workload until ctx ends. A later Run continues where this
// one stopped. Between two Runs nothing changes by itself, and pods that
// clients delete stay terminating. Concurrent Runs take turns.
func (c *Cluster) Run(ctx context.Context) {
	s := c.sim
	s.running.Lock()
	defer s.running.Unlock()
	s.jump(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		advanced := c.Advanced()
		s.settle()
		rev := c.ResourceVersion()
		wait := time.Duration(1<<63 - 1)
		if len(s.tasks) > 0 {
			wait = time.Until(s.wall(s.tasks[0].at))
		}
		if wait <= 0 {
			s.step()
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-advanced:
			// The simulation itself may have written. If it was a client,
			// the consequences begin now and not at the last step.
			if c.ResourceVersion() != rev {
				s.clock = max(s.clock, s.since(time.Now()))
			}
		}
	}
}

// wall converts simulated time to the wall clock's.
func (s *simulation) wall(at time.Duration) time.Time { return s.base.Add(s.real(at)) }

// real converts a duration of simulated time to real time.
func (s *simulation) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.w.Speed)
}

// since converts the wall clock's time to simulated time.
func (s *simulation) since(t time.Time) time.Duration {
	return time.Duration(float64(t.Sub(s.base)) * s.w.Speed)
}

// now is the current simulated time as the wall clock's.
func (s *simulation) now() time.Time { return s.wall(s.clock) }

// jump moves the wall clock without advancing simulated time: a task that was
// due in a second is still due in a second.
func (s *simulation) jump(to time.Time) { s.base = to.Add(-s.real(s.clock)) }

// pass advances simulated time by d and does everything due in it.
func (s *simulation) pass(d time.Duration) {
	end := s.clock + d
	s.settle()
	for len(s.tasks) > 0 && s.tasks[0].at <= end {
		s.step()
		s.settle()
	}
	s.clock = end
}

// step runs the next task.
func (s *simulation) step() {
	t := heap.Pop(&s.tasks).(task)
	s.clock = max(s.clock, t.at)
	t.do()
}

// after schedules do to run after d.
func (s *simulation) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.tasks, task{at: s.clock + max(d, 0), seq: s.seq, do: do})
}

// between returns a random duration in [least, most).
func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Float64()*float64(most-least))
}

// often runs do repeatedly, at random intervals that are every on average.
func (s *simulation) often(every time.Duration, do func()) {
	s.after(s.between(every/2, every*3/2), func() {
		do()
		s.often(every, do)
	})
}

// chance returns true with probability p.
func (s *simulation) chance(p float64) bool { return s.rng.Float64() < p }

// pick returns a random element; ok is false if there is none.
func pick[T any](s *simulation, from []T) (picked T, ok bool) {
	if len(from) == 0 {
		return picked, false
	}
	return from[s.rng.IntN(len(from))], true
}

type task struct {
	at  time.Duration
	seq uint64 // orders tasks of the same time
	do  func()
}

type taskQueue []task

func (q taskQueue) Len() int      { return len(q) }
func (q taskQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *taskQueue) Push(t any)   { *q = append(*q, t.(task)) }
func (q taskQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *taskQueue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = task{}
	*q = (*q)[:last]
	return t
}
