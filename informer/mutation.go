package informer

import (
	"os"
	"strconv"
)

// DetectMutations detects modifications of shared objects: those returned by Get,
// List or a View, and those passed to a handler, a loop or an index function. It
// is for tests and debugging, because it copies each such object. The objects are
// compared with their copies every second, when a handler or the body of a loop
// over events that received them returns, and when the informer stops. An object
// is checked for as long as the store or a reader holds it. Objects that do not
// have the Go type of a Kubernetes kind are not checked.
//
// report is called with a [*MutationError], possibly by several goroutines at
// once. If it is nil, the process panics with the error, as with client-go,
// because a program whose cache was modified cannot be trusted. client-go's
// environment variable KUBE_CACHE_MUTATION_DETECTOR=true enables the same for all
// informers, of this package and of package clientgo.
func DetectMutations(report func(error)) Option {
	return func(o *options) error {
		o.detect, o.report = true, report
		return nil
	}
}

// detectByEnvironment reports whether client-go's environment variable (see
// tools/cache/mutation_detector.go) enables detection.
func detectByEnvironment() bool {
	on, err := strconv.ParseBool(os.Getenv("KUBE_CACHE_MUTATION_DETECTOR"))
	return err == nil && on
}
