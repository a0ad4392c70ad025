package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// class is the kind of limit that a request counts against.
type class int

const (
	short       class = iota
	longRunning       // a watch, or an upgraded connection
)

func (c class) String() string { return [...]string{"requests", "watches"}[c] }

func classOf(r *http.Request) class { return routeOf(r).class() }

func (rt route) class() class {
	if rt.watch || rt.kind == tools { // which may wait, and whose reads are counted themselves
		return longRunning
	}
	return short
}

// limiter bounds the requests in flight: of all callers, to bound memory, and of each
// caller, to leave room for others.
type limiter struct {
	max, maxPerCaller [2]int

	mu            sync.Mutex
	all           [2]int
	callers       map[string]*[2]int // callers with requests in flight
	refused       [2]uint64
	refusedCaller [2]uint64 // by the limit for one caller
}

func newLimiter(o Options) *limiter {
	return &limiter{
		max:          [2]int{o.MaxRequests, o.MaxWatches},
		maxPerCaller: [2]int{o.MaxRequestsPerCaller, o.MaxWatchesPerCaller},
		callers:      map[string]*[2]int{},
	}
}

// enter counts a request until leave is called.
func (l *limiter) enter(c class) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[c] >= l.max[c] {
		l.refused[c]++
		return nil, tooMany(c, fmt.Sprintf("%d %s are open, which is the limit", l.max[c], c))
	}
	l.all[c]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all[c]--
	}, nil
}

// enterCaller counts a request of a caller; "" is no particular caller.
func (l *limiter) enterCaller(c class, caller string) (leave func(), err error) {
	if caller == "" {
		return func() {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.callers[caller]
	if counts == nil {
		counts = new([2]int)
		l.callers[caller] = counts
	}
	if counts[c] >= l.maxPerCaller[c] {
		l.refusedCaller[c]++
		return nil, tooMany(c, fmt.Sprintf("you have %d %s open, which is the limit for one caller", l.maxPerCaller[c], c))
	}
	counts[c]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if counts[c]--; *counts == [2]int{} {
			delete(l.callers, caller)
		}
	}, nil
}

func (l *limiter) counts() (all [2]int, callers int, refused, refusedCaller [2]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all, len(l.callers), l.refused, l.refusedCaller
}

// tooMany is a 429. A request ends soon, a watch may last: Retry-After differs.
func tooMany(c class, message string) error {
	return apierrors.NewTooManyRequests(message, [...]int{short: 1, longRunning: 5}[c])
}

// errTooLong is the cause when a request exceeds RequestTimeout.
var errTooLong = errors.New("the request took too long")

// limit verifies unknown credentials, bounds the number of requests, and sets a
// deadline for those that are not watches. Liveness checks are never limited. Requests
// with unverified credentials do not count.
func (s *Server) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r).kind == jointWindow {
			s.serveJoint(w, r) // each of its parts comes here
			return
		}
		if err := s.verify(r); err != nil {
			if !clientGone(r) {
				s.refuse(w, r, err)
			}
			return
		}
		ctx := r.Context()
		if routeOf(r).kind == health {
			next.ServeHTTP(w, r)
			return
		}
		c := classOf(r)
		leave, err := s.limits.enter(c)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		defer leave()
		if err := s.memory.admit(c, listsEverything(r)); err != nil {
			s.refuse(w, r, err)
			return
		}
		if c == short {
			limited, cancel := context.WithTimeoutCause(ctx, s.opts.RequestTimeout, errTooLong)
			defer cancel()
			ctx = limited
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// largePage is the limit from which on a page counts as a full list.
const largePage = 500

// listsEverything reports whether a request is for a list that may be long.
func listsEverything(r *http.Request) bool {
	rt := routeOf(r)
	switch rt.kind {
	case objects:
		if len(rt.rest) == 2 || r.URL.Query().Has("name") {
			return false
		}
	case kubernetes:
		if rt.api == nil || rt.api.Info.Verb != "list" {
			return false
		}
		if r.URL.Query().Get("resourceVersion") == "0" {
			return true // has no pages, as in kube-apiserver
		}
	default:
		return false
	}
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	return err != nil || limit <= 0 || limit > largePage
}

// clientGone reports whether the client no longer waits for a response. A client whose
// request took too long still waits.
func clientGone(r *http.Request) bool {
	return r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), errTooLong)
}

// timeoutError replaces the error of a request that took too long by a timeout.
func timeoutError(r *http.Request, err error) error {
	if err != nil && errors.Is(context.Cause(r.Context()), errTooLong) {
		return apierrors.NewTimeoutError(errTooLong.Error(), int((2 * time.Second).Seconds()))
	}
	return err
}
