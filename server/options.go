package server

import (
	"log/slog"
	"time"

	"github.com/tidings-io/tidings/kubeapi"
)

// DefaultAddr is where [Server.ListenAndServe] listens if not told otherwise.
const DefaultAddr = "127.0.0.1:8888"

// Options of a [Server]. The zero value is usable.
type Options struct {
	// InsecureServeAnyone allows listening on other than loopback addresses,
	// though whoever connects can read all that the mirror can.
	InsecureServeAnyone bool
	// Version of the program, for the index.
	Version string
	// KeepAlive is the longest silence on a watch. 0 means 15 seconds.
	KeepAlive time.Duration
	// WriteTimeout is how long a client may take to read what is written to
	// it at once, before it is given up on. 0 means 30 seconds.
	WriteTimeout time.Duration
	// ShutdownTimeout is how long requests may go on once the server is to
	// end; watches end at once. 0 means 10 seconds.
	ShutdownTimeout time.Duration
	// MaxWatches is the number of watches open at once. 0 means 10,000.
	MaxWatches int
	// Passthrough hands requests of the Kubernetes API that are not reads of
	// mirrored resources to the cluster, under the credentials of who makes
	// them and never the mirror's. They are refused otherwise.
	Passthrough bool
	// Kubernetes are options of the Kubernetes API. Its Else, Watching and
	// Logger are the server's to set.
	Kubernetes kubeapi.Options
	// Logger gets each request at debug level and what goes wrong at others.
	// nil means slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	def(&o.KeepAlive, 15*time.Second)
	def(&o.WriteTimeout, 30*time.Second)
	def(&o.ShutdownTimeout, 10*time.Second)
	if o.MaxWatches <= 0 {
		o.MaxWatches = 10_000
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

const (
	// reconnect is how soon an EventSource should come back.
	reconnect = 2 * time.Second
	// What a request may take.
	maxHeader     = 32 << 10
	maxQuery      = 8 << 10
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)
