package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// churn changes recorded pods as a cluster does. Half of the changes are of rollouts, of
// which 16 are in progress: pod by pod, a ReplicaSet's pods are replaced. The new pod is
// added, scheduled, started and becomes ready; the old one is told to end, ends, and is
// deleted. A quarter are of restarts: a container ends, waits, runs again with another id,
// and the pod becomes ready. A quarter are of conditions: a pod becomes unready, and ready
// again. Restarts and conditions are of random pods, 100 at a time, step by step, so
// that the versions of a pod are far apart. Each write updates the time of its manager's
// entry in managedFields. One pod, the first, has every 500th change.
type churn struct {
	rng     *rand.Rand
	pods    []*corev1.Pod
	version uint64
	clock   time.Time
	changes int

	rollouts, restarts, conditions []script
	first                          script
	rolling                        map[int]bool // by the first pod of the ReplicaSet
}

// change is a change of a pod, with its JSON as the API server would send it.
type change struct {
	kind informer.EventType
	key  string
	json []byte
}

// script is what happens to a pod, step by step; it returns false after its last step.
type script func() (kind informer.EventType, pod *corev1.Pod, more bool)

func newChurn(pods int) *churn {
	c := &churn{rng: rand.New(rand.NewPCG(1, 2)), version: 1_000_000_000, clock: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
	for pod := range samplepods.All(pods, 1) {
		pod.TypeMeta = podType
		c.pods = append(c.pods, pod)
	}
	c.rolling = map[int]bool{}
	c.rollouts, c.restarts, c.conditions = make([]script, min(16, pods/100)), make([]script, 50), make([]script, 50)
	return c
}

// list calls each for the pods as they are.
func (c *churn) list(each func(change) error) error {
	for _, pod := range c.pods {
		if err := each(c.encode(informer.Added, pod)); err != nil {
			return err
		}
	}
	return nil
}

func (c *churn) encode(kind informer.EventType, pod *corev1.Pod) change {
	b, err := json.Marshal(pod)
	if err != nil {
		panic(err) // pods can be encoded
	}
	return change{kind, pod.Namespace + "/" + pod.Name, b}
}

// next makes the next change.
func (c *churn) next() change {
	c.changes++
	c.version++
	c.clock = c.clock.Add(50 * time.Millisecond)
	var kind informer.EventType
	var pod *corev1.Pod
	switch n := c.rng.IntN(4); {
	case c.changes%500 == 0:
		kind, pod = c.step(&c.first, func() script { return c.condition(0) })
	case n < 2:
		kind, pod = c.step(&c.rollouts[c.rng.IntN(len(c.rollouts))], c.rollout)
	case n == 2:
		kind, pod = c.step(&c.restarts[c.rng.IntN(len(c.restarts))], func() script { return c.restart(c.some()) })
	default:
		kind, pod = c.step(&c.conditions[c.rng.IntN(len(c.conditions))], func() script { return c.condition(c.some()) })
	}
	pod.ResourceVersion = strconv.FormatUint(c.version, 10)
	return c.encode(kind, pod)
}

// some is a pod other than the first.
func (c *churn) some() int { return 1 + c.rng.IntN(len(c.pods)-1) }

func (c *churn) step(s *script, begin func() script) (informer.EventType, *corev1.Pod) {
	if *s == nil {
		*s = begin()
	}
	kind, pod, more := (*s)()
	if !more {
		*s = nil
	}
	return kind, pod
}

// steps is a script of changes of one pod.
func (c *churn) steps(at int, changes ...func(*corev1.Pod)) script {
	uid, n := c.pods[at].UID, 0
	return func() (informer.EventType, *corev1.Pod, bool) {
		pod := c.pods[at]
		if pod.UID != uid { // a rollout has replaced it
			uid, n = pod.UID, 0
		}
		changes[n](pod)
		c.managed(pod)
		n++
		return informer.Updated, pod, n < len(changes)
	}
}

func (c *churn) condition(at int) script {
	return c.steps(at, func(pod *corev1.Pod) { c.ready(pod, false) }, func(pod *corev1.Pod) { c.ready(pod, true) })
}

func (c *churn) restart(at int) script {
	return c.steps(at, func(pod *corev1.Pod) {
		s := &pod.Status.ContainerStatuses[0]
		s.LastTerminationState = corev1.ContainerState{Terminated: c.terminated(s.ContainerID, 137, "Error")}
		s.State, s.Ready = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container=" + s.Name + " pod=" + pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")",
		}}, false
		c.ready(pod, false)
	}, func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].RestartCount++
		c.run(pod)
	}, func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].Ready = true
		c.ready(pod, true)
	})
}

// rollout replaces the pods of one ReplicaSet, one after the other.
func (c *churn) rollout() script {
	some := func() int { return (50 + c.rng.IntN(len(c.pods)-50)) / 50 * 50 } // not the first
	at := some()
	for c.rolling[at] { // one at a time
		at = some()
	}
	c.rolling[at] = true
	first := at
	hash := strconv.FormatUint(c.rng.Uint64N(1<<32), 36)
	checksum := fmt.Sprintf("%016x%016x%016x%016x", c.rng.Uint64(), c.rng.Uint64(), c.rng.Uint64(), c.rng.Uint64())
	image, owner := fmt.Sprintf(":v%d", c.rng.IntN(1000)), c.uid()
	var old, pod *corev1.Pod
	n := 0
	return func() (informer.EventType, *corev1.Pod, bool) {
		kind, out := informer.Updated, pod
		switch n {
		case 0:
			old = c.pods[at]
			pod = c.replacement(old, hash, checksum, image, owner)
			kind, out = informer.Added, pod
		case 1:
			pod.Spec.NodeName = old.Spec.NodeName
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: c.now()}}
		case 2:
			was := old.DeepCopy()
			started := c.now()
			pod.Status = was.Status
			pod.Status.StartTime = &started
			ip := fmt.Sprintf("10.%d.%d.%d", c.rng.IntN(256), c.rng.IntN(256), 1+c.rng.IntN(254))
			for i, entry := range was.ManagedFields {
				was.ManagedFields[i].FieldsV1.SetRawBytes(bytes.ReplaceAll(entry.FieldsV1.GetRawBytes(), []byte(pod.Status.PodIP), []byte(ip)))
			}
			pod.ManagedFields = was.ManagedFields
			pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
			for i := range pod.Status.Conditions {
				pod.Status.Conditions[i].LastTransitionTime = started
			}
			for i := range pod.Status.ContainerStatuses {
				s := &pod.Status.ContainerStatuses[i]
				s.Image, s.RestartCount = s.Image+image, 0
			}
			c.run(pod)
			c.ready(pod, false)
		case 3:
			pod.Status.ContainerStatuses[0].Ready = true
			c.ready(pod, true)
		case 4:
			gone, grace := c.now(), int64(30)
			old.DeletionTimestamp, old.DeletionGracePeriodSeconds = &gone, &grace
			out = old
		case 5:
			for i := range old.Status.ContainerStatuses {
				s := &old.Status.ContainerStatuses[i]
				s.State, s.Ready = corev1.ContainerState{Terminated: c.terminated(s.ContainerID, 0, "Completed")}, false
			}
			c.ready(old, false)
			out = old
		case 6:
			c.pods[at] = pod
			at++
			n = 0
			if at%50 == 0 || at == len(c.pods) {
				delete(c.rolling, first)
				return informer.Deleted, old, false
			}
			return informer.Deleted, old, true
		}
		n++
		c.managed(out)
		return kind, out, true
	}
}

// replacement is a new pod of a ReplicaSet.
func (c *churn) replacement(old *corev1.Pod, hash, checksum, image string, owner types.UID) *corev1.Pod {
	pod := old.DeepCopy()
	app := old.Labels["app"]
	pod.GenerateName = app + "-" + hash + "-"
	pod.Name = pod.GenerateName + strconv.FormatUint(c.rng.Uint64N(1<<31), 36)
	pod.UID, pod.CreationTimestamp = c.uid(), c.now()
	pod.Labels["pod-template-hash"], pod.Annotations["checksum/config"] = hash, checksum
	pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = app+"-"+hash, owner
	pod.ManagedFields = pod.ManagedFields[:1]
	pod.Spec.NodeName = ""
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		container.Image += image
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: old.Status.QOSClass}
	return pod
}

func (c *churn) now() metav1.Time { return metav1.NewTime(c.clock.Truncate(time.Second)) }

func (c *churn) uid() types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", c.rng.Uint32(), c.rng.Uint32N(1<<16), c.rng.Uint32N(1<<12), c.rng.Uint32N(1<<12), c.rng.Uint64N(1<<48)))
}

// run starts the first container.
func (c *churn) run(pod *corev1.Pod) {
	s := &pod.Status.ContainerStatuses[0]
	s.ContainerID = fmt.Sprintf("containerd://%016x%016x%016x%016x", c.rng.Uint64(), c.rng.Uint64(), c.rng.Uint64(), c.rng.Uint64())
	s.State, s.Ready = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: c.now()}}, false
}

func (c *churn) terminated(id string, code int32, reason string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: metav1.NewTime(c.clock.Add(-time.Hour).Truncate(time.Second)), FinishedAt: c.now(), ContainerID: id}
}

// ready sets the conditions of a pod.
func (c *churn) ready(pod *corev1.Pod, ready bool) {
	status, reason, message := corev1.ConditionTrue, "", ""
	if !ready {
		status, reason, message = corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: ["+pod.Spec.Containers[0].Name+"]"
	}
	for i := range pod.Status.Conditions {
		if at := &pod.Status.Conditions[i]; at.Type == corev1.PodReady || at.Type == corev1.ContainersReady {
			at.Status, at.Reason, at.Message, at.LastTransitionTime = status, reason, message, c.now()
		}
	}
}

// managed sets the time of the last manager's entry.
func (c *churn) managed(pod *corev1.Pod) {
	if n := len(pod.ManagedFields); n > 0 {
		now := c.now()
		pod.ManagedFields[n-1].Time = &now
	}
}

// The changes of a churn can be written to a file, so that making them costs nothing where
// they are measured.

// writeChurn writes the list and some changes of pods to a file.
func writeChurn(name string, pods, changes int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	write := func(c change) error {
		head := append(binary.AppendUvarint(nil, uint64(len(c.key))), byte(c.kind))
		head = binary.AppendUvarint(append(head, c.key...), uint64(len(c.json)))
		if _, err := w.Write(head); err != nil {
			return err
		}
		_, err := w.Write(c.json)
		return err
	}
	made := newChurn(pods)
	if err := made.list(write); err != nil {
		return err
	}
	for range changes {
		if err := write(made.next()); err != nil {
			return err
		}
	}
	return w.Flush()
}

// recordedChurn reads what writeChurn has written.
type recordedChurn struct {
	in *bufio.Reader
	f  *os.File
	b  []byte
}

func openChurn(name string) (*recordedChurn, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &recordedChurn{in: bufio.NewReaderSize(f, 1<<20), f: f}, nil
}

func (r *recordedChurn) close() { _ = r.f.Close() }

// next returns the next change. Its JSON is only valid until the next call.
func (r *recordedChurn) next() (c change, err error) {
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		return c, err
	}
	kind, err := r.in.ReadByte()
	if err != nil {
		return c, err
	}
	read := func(n uint64) []byte {
		if uint64(cap(r.b)) < n {
			r.b = make([]byte, 2*n)
		}
		r.b = r.b[:n]
		if err == nil {
			_, err = io.ReadFull(r.in, r.b)
		}
		return r.b
	}
	c.kind, c.key = informer.EventType(kind), string(read(n))
	if err == nil {
		n, err = binary.ReadUvarint(r.in)
	}
	c.json = read(n)
	return c, err
}
