package demo

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Workload is a company's cluster in motion: a shop, its payments, data
// stores, monitoring and CI on a couple of nodes. People roll out versions,
// some of them broken, scale up and down, open preview environments and change
// configuration; pods crash and recover, nodes come and go, jobs complete. The
// usual controllers are there, too, so that what clients change through the
// API has its consequences: a deleted pod terminates and is replaced, a new
// Deployment gets its pods.
//
// The same seed makes the same cluster and, as long as nobody else writes to
// it, the same life, second by second.
type Workload struct {
	// Seed chooses one of many lives.
	Seed uint64
	// Speed is how much faster than in real life everything happens. The
	// default is 1, which makes a few changes a second.
	Speed float64
	// Pods is about how many pods there are. The default is 200.
	Pods int
	// Nodes is how many nodes there are at first. The default is one for
	// every 16 pods, and at least 3.
	Nodes int
	// EventTTL is how long Events are kept after they last happened. The
	// default is half an hour of the workload's own time.
	EventTTL time.Duration
}

// The life a cluster has had before New returns: its age, and how long it has
// been moving, of its own time, right before now. In larger clusters more
// happens in less time.
const pastDays = 41

func (w *Workload) past() time.Duration {
	return max(time.Minute, 10*time.Minute*200/time.Duration(max(w.Pods, 200)))
}

// simulation drives a workload: a queue of what happens when, and controllers
// that follow the store as real ones follow the API. All of it runs in one
// goroutine at a time, which makes it deterministic.
type simulation struct {
	c   *Cluster
	w   Workload
	rng *rand.Rand

	running sync.Mutex // held by Run

	// The simulation has a time of its own that begins at zero. base is the
	// wall clock's time of its beginning.
	base  time.Time
	clock time.Duration
	tasks taskQueue
	seq   uint64

	follower
	kubelets
	cloud
	recorder
	people
}

// systemNamespace is the identity and the age of the i-th system namespace.
// The uid of kube-system is what people take for the identity of a cluster.
func (w *Workload) systemNamespace(i int) (types.UID, metav1.Time) {
	s := simulation{rng: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
	return s.uid(), metav1.NewTime(time.Now().AddDate(0, 0, -pastDays).Truncate(time.Second))
}

// newSimulation fills the cluster.
func newSimulation(c *Cluster, w Workload) *simulation {
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
	s := &simulation{c: c, w: w, rng: rand.New(rand.NewPCG(w.Seed, 0x7469_6469_6e67_73))}
	s.follower.init()
	s.kubelets.init()
	s.recorder.init()
	s.people.init()

	// Everything was installed some time in the last weeks, one after the
	// other, and has come up; what follows are the minutes before now.
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

// Run lets the cluster live until ctx ends. It can be run again, and goes on
// where it stopped; in the meantime nothing happens by itself, and pods that
// clients delete stay terminating. Without a workload there is nothing to do
// but wait. Two Runs at a time take turns.
func (c *Cluster) Run(ctx context.Context) {
	s := c.sim
	if s == nil {
		<-ctx.Done()
		return
	}
	s.running.Lock()
	defer s.running.Unlock()
	s.jump(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		advanced := c.advanced.wait()
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
			// Somebody wrote, be it the simulation itself. If it was a
			// client, its consequences begin now and not at the last step.
			if c.ResourceVersion() != rev {
				s.clock = max(s.clock, s.since(time.Now()))
			}
		}
	}
}

// wall is the wall clock's time at a time of the simulation.
func (s *simulation) wall(at time.Duration) time.Time { return s.base.Add(s.real(at)) }

// real is how long a duration of the simulation really takes.
func (s *simulation) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.w.Speed)
}

// since is the time of the simulation at a time of the wall clock.
func (s *simulation) since(t time.Time) time.Duration {
	return time.Duration(float64(t.Sub(s.base)) * s.w.Speed)
}

// now is the wall clock's time of what is happening.
func (s *simulation) now() time.Time { return s.wall(s.clock) }

// jump moves the wall clock, not the simulation's: what was to come in a
// second still comes in a second.
func (s *simulation) jump(to time.Time) { s.base = to.Add(-s.real(s.clock)) }

// pass lets time pass at once.
func (s *simulation) pass(d time.Duration) {
	end := s.clock + d
	s.settle()
	for len(s.tasks) > 0 && s.tasks[0].at <= end {
		s.step()
		s.settle()
	}
	s.clock = end
}

// step does what is due next.
func (s *simulation) step() {
	t := heap.Pop(&s.tasks).(task)
	s.clock = max(s.clock, t.at)
	t.do()
}

// after has something done in a while.
func (s *simulation) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.tasks, task{at: s.clock + max(d, 0), seq: s.seq, do: do})
}

// between is a random duration.
func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Float64()*float64(most-least))
}

// often does something again and again, at random times that are every apart
// on average.
func (s *simulation) often(every time.Duration, do func()) {
	s.after(s.between(every/2, every*3/2), func() {
		do()
		s.often(every, do)
	})
}

// chance is true with probability p.
func (s *simulation) chance(p float64) bool { return s.rng.Float64() < p }

// pick is a random element; ok is false if there is none.
func pick[T any](s *simulation, from []T) (picked T, ok bool) {
	if len(from) == 0 {
		return picked, false
	}
	return from[s.rng.IntN(len(from))], true
}

type task struct {
	at  time.Duration
	seq uint64 // first come, first served
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
