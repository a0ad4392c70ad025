package access

import (
	"log/slog"
	"time"
)

// Options of a [Gate]. The zero value is usable.
type Options struct {
	// ClientCAFile has the authorities, in PEM, whose client certificates are
	// accepted, for every cluster. Empty: each cluster's own.
	ClientCAFile string

	// Allow is how long the cluster's yes is believed: to a token, and to a
	// question of rights. It bounds how long a right outlives its end. 0 means
	// 10 seconds, which is what aggregated API servers ask with by default.
	Allow time.Duration
	// Deny is the same for a no. 0 means 2 seconds: who has just been given a
	// right need not wait for it, and who has none and asks without pause
	// costs the cluster a question every 2 seconds.
	Deny time.Duration
	// Hidden is how long a namespace that was refused stays out of what
	// [Reviewer.Among] finds. 0 means 30 seconds: there may be a thousand.
	Hidden time.Duration
	// Fail is how soon a question is sent again that was not answered. 0 means
	// 1 second.
	Fail time.Duration
	// Timeout is how long a question may wait until it can be sent, and how long
	// its answer may take then. 0 means 10 seconds.
	Timeout time.Duration
	// Grace is how long the last yes is used after its time while the cluster
	// cannot be asked: it cannot be reached, does not answer within 2 seconds or
	// says that it cannot. It holds for new requests and open ones, and ends with
	// a no. 0 means 5 minutes, and less than 0 that there is none.
	Grace time.Duration

	// MaxEntries bounds each cache of each cluster. When it is full, the oldest
	// answer goes of the user with the most. 0 means 20,000.
	MaxEntries int
	// MaxQuestions is how many questions a cluster is asked at once; more wait.
	// One user's are at most half of them. 0 means 64.
	MaxQuestions int
	// MaxStrangers is the same for questions about tokens that are not known, so
	// that whoever invents some keeps nobody else waiting. 0 means 32.
	MaxStrangers int

	// Logger gets what keeps clusters from being asked. nil means
	// slog.Default().
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
	duration(&o.Allow, 10*time.Second)
	duration(&o.Deny, 2*time.Second)
	duration(&o.Hidden, 30*time.Second)
	duration(&o.Fail, time.Second)
	duration(&o.Timeout, 10*time.Second)
	if o.Grace == 0 {
		o.Grace = 5 * time.Minute
	}
	number(&o.MaxEntries, 20_000)
	number(&o.MaxQuestions, 64)
	number(&o.MaxStrangers, 32)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
