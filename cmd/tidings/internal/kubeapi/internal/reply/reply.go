// Package reply has helpers for the answers of all handlers of the Kubernetes API.
package reply

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Error answers with the Status of an error, or Service Unavailable if it has none.
// Nothing may have been written before.
func Error(w http.ResponseWriter, err error) {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: err.Error()}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // a Status can always be encoded
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(append(body, '\n'))
}

// Prefix returns the prefix that was stripped from the path of the request, which selects
// one of several clusters.
func Prefix(r *http.Request) string {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	before, ok := strings.CutSuffix(asked, r.URL.EscapedPath())
	if !ok || !strings.HasPrefix(before, "/") {
		return ""
	}
	return before
}

// Relocate adds the prefix of the request to the Location of an answer.
func Relocate(h http.Header, r *http.Request) {
	if location := h.Get("Location"); strings.HasPrefix(location, "/") && !strings.HasPrefix(location, "//") {
		h.Set("Location", Prefix(r)+location)
	}
}
