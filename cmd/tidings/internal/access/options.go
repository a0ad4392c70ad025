package access

import (
	"log/slog"
	"time"
)

// Options of a [Gate]. The zero value is usable.
type Options struct {
	// ClientCAFile is a PEM file of the authorities whose client certificates are
	// accepted, for every cluster. If empty, each cluster's own are used.
	ClientCAFile string

	// AllowTTL is how long a positive result is valid, of a TokenReview and of a
	// SubjectAccessReview. It bounds how long a right outlives its end. 0 means 10
	// seconds, the default of aggregated API servers.
	AllowTTL time.Duration
	// DenyTTL is the same for a negative result. 0 means 2 seconds: a new right works
	// soon, and a caller without the right that repeats its request without pause costs
	// one review every 2 seconds.
	DenyTTL time.Duration
	// NamespaceDenyTTL is how long [Reviewer.AllowedNamespaces] leaves out a namespace
	// that was denied. 0 means 30 seconds: there may be a thousand namespaces.
	NamespaceDenyTTL time.Duration
	// ErrorTTL is how long a review that got no answer is not repeated. 0 means 1
	// second.
	ErrorTTL time.Duration
	// Timeout is how long a review may wait for a seat, and then for its answer. 0
	// means 10 seconds.
	Timeout time.Duration
	// Grace is how long after it expires the last positive result is used while the
	// cluster is unavailable: it cannot be reached, does not answer within 2 seconds,
	// or answers that it cannot. Grace is for new and for open requests, and ends with
	// a negative answer. 0 means 5 minutes; a negative Grace means none.
	Grace time.Duration

	// MaxEntries bounds each cache of each cluster. A full cache evicts the oldest
	// result of the user with the most. 0 means 20,000.
	MaxEntries int
	// MaxReviews is the number of seats of a cluster for reviews in flight; more
	// reviews wait. One user has half of them at most. 0 means 64.
	MaxReviews int
	// MaxUnverifiedReviews is the same for reviews of unverified tokens, which have
	// seats of their own: a client that invents tokens keeps no other waiting. 0 means
	// 32.
	MaxUnverifiedReviews int

	// Logger logs why a cluster is unavailable. nil means slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	duration := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	number := func(n *int, otherwise int) {
		if *n <= 0 {
			*n = otherwise
		}
	}
	duration(&o.AllowTTL, 10*time.Second)
	duration(&o.DenyTTL, 2*time.Second)
	duration(&o.NamespaceDenyTTL, 30*time.Second)
	duration(&o.ErrorTTL, time.Second)
	duration(&o.Timeout, 10*time.Second)
	if o.Grace == 0 {
		o.Grace = 5 * time.Minute
	}
	number(&o.MaxEntries, 20_000)
	number(&o.MaxReviews, 64)
	number(&o.MaxUnverifiedReviews, 32)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
