package informer

import (
	"os"
	"strconv"

	"github.com/tidings-io/tidings/internal/mutation"
)

// DetectMutations finds out if somebody modifies an object that the informer
// has handed out: by Get, List, a View, an event or an index function. It is for
// tests and for the search of a bug: each object that is handed out is copied,
// and all are compared with their copies every second, when a handler or the
// body of a loop over events returns from one it was told of, and when the
// informer stops. Objects are watched for as long as the store or a reader holds
// them; those that are of no Go type of a Kubernetes kind are not watched.
//
// report is given a [*MutationError], and may be called by several goroutines at
// once. If it is nil the process ends with the error as a panic, as with
// client-go, whose environment variable KUBE_CACHE_MUTATION_DETECTOR=true does
// the same for all informers, this library's as well as those of the drop-in:
// what a program does whose cache was modified cannot be trusted.
func DetectMutations(report func(error)) Option {
	return func(o *options) error {
		o.detect, o.report = true, report
		return nil
	}
}

// MutationError says which objects were modified, and how.
type MutationError = mutation.Error

// detectByEnvironment says whether the environment asks for detection. The
// variable is client-go's (tools/cache/mutation_detector.go).
func detectByEnvironment() bool {
	on, err := strconv.ParseBool(os.Getenv("KUBE_CACHE_MUTATION_DETECTOR"))
	return err == nil && on
}
