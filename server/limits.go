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

// class is what a request counts as.
type class int

const (
	brief class = iota // answered and done
	open               // a watch, or another that goes on
)

func (c class) String() string { return [...]string{"requests", "watches"}[c] }

func classOf(r *http.Request) class { return routeOf(r).class() }

func (rt route) class() class {
	if rt.watch {
		return open
	}
	return brief
}

// limiter bounds what is under way at once: in all, so that memory is, and for
// each caller, so that one leaves room for the others.
type limiter struct {
	most, mostOfOne [2]int

	mu       sync.Mutex
	all      [2]int
	ofOne    map[string]*[2]int // those who have anything under way
	refused  [2]uint64
	refusedH [2]uint64 // because of the caller's own
}

func newLimiter(o Options) *limiter {
	return &limiter{
		most:      [2]int{o.MaxRequests, o.MaxWatches},
		mostOfOne: [2]int{o.MaxRequestsPerCaller, o.MaxWatchesPerCaller},
		ofOne:     map[string]*[2]int{},
	}
}

// enter counts a request. The function that is returned ends that.
func (l *limiter) enter(c class) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[c] >= l.most[c] {
		l.refused[c]++
		return nil, tooMany(c, fmt.Sprintf("%d %s are open, which is the limit", l.most[c], c))
	}
	l.all[c]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all[c]--
	}, nil
}

// enterCaller counts a request of a caller, "" being nobody in particular.
func (l *limiter) enterCaller(c class, caller string) (leave func(), err error) {
	if caller == "" {
		return func() {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := l.ofOne[caller]
	if mine == nil {
		mine = new([2]int)
		l.ofOne[caller] = mine
	}
	if mine[c] >= l.mostOfOne[c] {
		l.refusedH[c]++
		return nil, tooMany(c, fmt.Sprintf("you have %d %s open, which is the limit for one caller", l.mostOfOne[c], c))
	}
	mine[c]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if mine[c]--; *mine == [2]int{} {
			delete(l.ofOne, caller)
		}
	}, nil
}

func (l *limiter) counts() (all [2]int, callers int, refused, refusedH [2]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all, len(l.ofOne), l.refused, l.refusedH
}

// tooMany says when to come back: a request is over soon, a watch may last.
func tooMany(c class, message string) error {
	return apierrors.NewTooManyRequests(message, [...]int{brief: 1, open: 5}[c])
}

// errTooLong is why a request that is not a watch ends before it is done.
var errTooLong = errors.New("the request took too long")

// limit bounds how many requests there are and how long those take that are not
// watches. Whether the server is alive can always be asked. Only requests of
// known callers count.
func (s *Server) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r).kind == health {
			next.ServeHTTP(w, r)
			return
		}
		if err := s.meet(r); err != nil {
			if !unheard(r) {
				s.refuse(w, r, err)
			}
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
		if c == brief {
			ctx, cancel := context.WithTimeoutCause(r.Context(), s.opts.RequestTimeout, errTooLong)
			defer cancel()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// manyAre is the size of a page that is as good as everything.
const manyAre = 500

// listsEverything says that a request is for a list that may be long.
func listsEverything(r *http.Request) bool {
	rt := routeOf(r)
	switch rt.kind {
	case objects:
		if len(rt.rest) == 2 {
			return false
		}
	case kubernetes:
		if rt.api == nil || rt.api.Info.Verb != "list" {
			return false
		}
		if r.URL.Query().Get("resourceVersion") == "0" {
			return true // which has no pages, as in kube-apiserver
		}
	default:
		return false
	}
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	return err != nil || limit <= 0 || limit > manyAre
}

// unheard says that nobody waits for an answer any more. Who has waited too long
// is to be told.
func unheard(r *http.Request) bool {
	return r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), errTooLong)
}

// inTime makes the error of a request that took too long out of the many that
// come of it.
func inTime(r *http.Request, err error) error {
	if err != nil && errors.Is(context.Cause(r.Context()), errTooLong) {
		return apierrors.NewTimeoutError(errTooLong.Error(), int((2 * time.Second).Seconds()))
	}
	return err
}
