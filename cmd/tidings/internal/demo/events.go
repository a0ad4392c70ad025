package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// recorder writes Events. A repeated Event of an object is one Event with a count.
// Events are deleted some time after they last happened.
type recorder struct {
	events map[eventKey]*eventLife
}

type eventKey struct {
	uid             types.UID
	reason, message string
}

type eventLife struct {
	ref  ref
	last time.Duration
}

func (r *recorder) init() { r.events = map[eventKey]*eventLife{} }

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// event records an Event of an object. from is the component, or "kubelet, NODE".
func (s *simulation) event(obj fakeapi.Object, kind, from, reason, message string, args ...any) {
	s.eventOn(referTo(obj), kind, from, reason, message, args...)
}

func referTo(obj fakeapi.Object) corev1.ObjectReference {
	about, err := reference.GetReference(scheme.Scheme, obj)
	if err != nil {
		panic("demo: an object of an unknown type: " + err.Error()) // the simulation only has objects of known types
	}
	return *about
}

// containerEvent records an Event of a container of a pod.
func (s *simulation) containerEvent(pod *corev1.Pod, container, kind, reason, message string, args ...any) {
	about := referTo(pod)
	about.FieldPath = "spec.containers{" + container + "}"
	s.eventOn(about, kind, "kubelet, "+pod.Spec.NodeName, reason, message, args...)
}

func (s *simulation) eventOn(about corev1.ObjectReference, kind, from, reason, message string, args ...any) {
	message = fmt.Sprintf(message, args...)
	key := eventKey{about.UID, reason, message}
	if life, ok := s.events[key]; ok {
		life.last = s.clock
		if mutate(s, life.ref, func(e *corev1.Event) {
			e.Count++
			e.LastTimestamp = s.stamp()
		}) {
			return
		}
	}
	component, host, _ := strings.Cut(from, ", ")
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where events of cluster-wide objects go
	}
	e, ok := create(s, gvrEvents, &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: about.Name + "." + s.hex(16)},
		InvolvedObject:      about,
		Type:                kind,
		Reason:              reason,
		Message:             message,
		Source:              corev1.EventSource{Component: component, Host: host},
		ReportingController: component,
		ReportingInstance:   host,
		FirstTimestamp:      s.stamp(),
		LastTimestamp:       s.stamp(),
		Count:               1,
	})
	if ok {
		s.events[key] = &eventLife{ref: ref{gvrEvents, e.Namespace, e.Name}, last: s.clock}
	}
}

// expireEvents removes old Events every minute, in the order of their names.
func (s *simulation) expireEvents() {
	s.dropEvents(func(e *eventLife) bool { return s.clock-e.last > s.w.EventTTL })
	s.after(time.Minute, s.expireEvents)
}

// forgetEvents removes all Events.
func (s *simulation) forgetEvents() {
	s.dropEvents(func(*eventLife) bool { return true })
}

func (s *simulation) dropEvents(old func(*eventLife) bool) {
	var refs []ref
	for key, life := range s.events {
		if old(life) {
			refs = append(refs, life.ref)
			delete(s.events, key)
		}
	}
	slices.SortFunc(refs, compareRefs)
	for _, r := range refs {
		s.removeNow(r)
	}
}
