package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
)

// problem is the body of an error response.
type problem struct {
	Error    string    `json:"error"`
	Reason   string    `json:"reason"`
	Exists   []string  `json:"exists,omitempty"`
	Progress *progress `json:"progress,omitempty"`
}

// progress is how far an initial list has come.
type progress struct {
	Phase     informer.Phase `json:"phase"`
	Received  int64          `json:"received"`
	Expected  *int64         `json:"expected,omitempty"`
	LastError string         `json:"lastError,omitempty"`
}

func progressOf(s *informer.Status) *progress {
	p := &progress{Phase: s.Phase, Received: s.Received}
	if s.Expected >= 0 {
		p.Expected = &s.Expected
	}
	if s.LastError != nil {
		p.LastError = cluster.PublicMessage(s.LastError)
	}
	return p
}

// invalid is the error of an invalid request.
func invalid(exists []string, format string, args ...any) error {
	return &mirror.Error{Reason: mirror.Invalid, Exists: exists, Message: fmt.Sprintf(format, args...)}
}

// codes are the status codes of the mirror's reasons.
var codes = map[mirror.Reason]int{
	mirror.UnknownCluster:  http.StatusNotFound,
	mirror.ClusterNeeded:   http.StatusBadRequest,
	mirror.UnknownResource: http.StatusNotFound,
	mirror.NotMirrored:     http.StatusNotFound,
	mirror.Withheld:        http.StatusForbidden,
	mirror.NotOffered:      http.StatusBadRequest,
	mirror.NotFound:        http.StatusNotFound,
	mirror.Invalid:         http.StatusBadRequest,
	mirror.Expired:         http.StatusGone,
	mirror.Forbidden:       http.StatusForbidden,
	mirror.Unauthorized:    http.StatusBadGateway, // the mirror's credentials, not the caller's
	mirror.Unreachable:     http.StatusServiceUnavailable,
	mirror.NotSynced:       http.StatusServiceUnavailable,
	mirror.Ended:           http.StatusServiceUnavailable,
}

// problemOf returns the status code, the body and the Retry-After of an error.
func problemOf(err error) (int, *problem, time.Duration) {
	var e *mirror.Error
	var status apierrors.APIStatus
	if part := (*partProblem)(nil); errors.As(err, &part) {
		return part.Status, &part.problem, 0
	}
	if !errors.As(err, &e) {
		if errors.As(err, &status) {
			return problemOfStatus(status.Status())
		}
		return http.StatusInternalServerError, &problem{Reason: "Internal", Error: err.Error()}, 0
	}
	p := &problem{Reason: string(e.Reason), Error: e.Message, Exists: e.Exists}
	if e.Progress != nil {
		p.Progress = progressOf(e.Progress)
	}
	return codes[e.Reason], p, e.Retry
}

// problemOfStatus is problemOf for errors of the access package.
func problemOfStatus(s metav1.Status) (int, *problem, time.Duration) {
	p := &problem{Reason: string(s.Reason), Error: s.Message}
	var retry time.Duration
	if s.Details != nil {
		retry = time.Duration(s.Details.RetryAfterSeconds) * time.Second
	}
	if s.Code == http.StatusUnauthorized {
		p.Error = "authentication is needed: a bearer token or a client certificate that the cluster accepts"
	}
	return int(s.Code), p, retry
}

// failWith answers with an error. Nothing may have been written before.
func failWith(w http.ResponseWriter, err error) {
	code, p, retry := problemOf(err)
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	fail(w, code, p)
}

func fail(w http.ResponseWriter, code int, p *problem) { writeJSON(w, code, p) }

// writeJSON answers with v as JSON.
func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode the response: %w", err)) // cannot happen: v is a type of this package
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}
