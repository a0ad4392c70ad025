package audit

import (
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const (
	// strangersPerSecond and strangersAtOnce bound the events of strangers that are
	// written one by one.
	strangersPerSecond, strangersAtOnce = 10, 100
	// maxFolds bounds the addresses that folded events are counted for. Those of
	// further addresses are counted together.
	maxFolds = 1024
)

// AnnotationRequests is the annotation of an event that stands for several requests:
// how many.
const AnnotationRequests = "tidings.io/requests"

// strangers decides which events of strangers are written, and counts the others.
type strangers struct {
	limiter *rate.Limiter

	mu    sync.Mutex
	folds map[fold]*folded
	all   uint64
}

// fold is what events have in common that are counted together.
type fold struct {
	source string // "": of all further addresses
	code   int32
}

type folded struct {
	requests    uint64
	first, last metav1.MicroTime
}

func newStrangers() strangers {
	return strangers{limiter: rate.NewLimiter(strangersPerSecond, strangersAtOnce), folds: map[fold]*folded{}}
}

// admit reports whether an event is written by itself. Otherwise it is counted.
func (s *strangers) admit(e *auditv1.Event) bool {
	if s.limiter.Allow() {
		return true
	}
	var key fold
	if len(e.SourceIPs) > 0 {
		key.source = e.SourceIPs[0]
	}
	if e.ResponseStatus != nil {
		key.code = e.ResponseStatus.Code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	f := s.folds[key]
	if f == nil && len(s.folds) >= maxFolds {
		key.source = ""
		f = s.folds[key]
	}
	if f == nil {
		f = &folded{first: e.RequestReceivedTimestamp}
		s.folds[key] = f
	}
	f.requests++
	f.last = e.StageTimestamp
	return false
}

// counts returns an event for each address and status code, with the number of events
// since the last call.
func (s *strangers) counts() (events []*auditv1.Event) {
	s.mu.Lock()
	folds := s.folds
	if len(folds) > 0 {
		s.folds = map[fold]*folded{}
	}
	s.mu.Unlock()
	for key, f := range folds {
		e := NewEvent(time.Time{})
		e.AuditID, e.Stage = uuid.NewUUID(), auditv1.StageResponseComplete
		e.RequestReceivedTimestamp, e.StageTimestamp = f.first, f.last
		e.ResponseStatus = &metav1.Status{Code: key.code}
		if key.source != "" {
			e.SourceIPs = []string{key.source}
		}
		e.Annotations = map[string]string{AnnotationRequests: strconv.FormatUint(f.requests, 10)}
		events = append(events, e)
	}
	return events
}

func (s *strangers) total() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}
