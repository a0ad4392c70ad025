package server

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/read"
)

// DefaultAddr is where [Server.ListenAndServe] listens if not told otherwise.
const DefaultAddr = "127.0.0.1:8888"

// Options of a [Server]. The zero value is usable.
type Options struct {
	// Gate, if not nil, finds out who callers are and what they may read.
	// Without, whoever can connect reads with the rights of the mirror.
	Gate *access.Gate
	// TLS, if not nil, is what the server serves with; see [LoadTLS] and
	// [GenerateTLS]. With a Gate it asks clients for certificates.
	TLS *tls.Config
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
	// RequestTimeout is how long a request may take that is not a watch. 0
	// means 1 minute, as for an API server.
	RequestTimeout time.Duration

	// HeaderTimeout is how long a client may take to say what it wants: for the
	// TLS handshake, and for the headers of a request. 0 means 10 seconds.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection may be open on which nothing is under
	// way. 0 means 2 minutes.
	IdleTimeout time.Duration

	// MaxConnections is the number of connections; more wait until one is
	// closed. 0 means 20,000.
	MaxConnections int
	// MaxConnectionsPerAddress is the same for each address but this machine's
	// own; more are closed at once, so that one address leaves room for the
	// others. 0 means half of MaxConnections.
	MaxConnectionsPerAddress int
	// MaxRequests and MaxWatches are the numbers of requests under way and of
	// watches open at once; more are answered 429 and when to come back. 0
	// means 400, as for an API server, and 10,000.
	MaxRequests, MaxWatches int
	// MaxRequestsPerCaller and MaxWatchesPerCaller are the same for each
	// caller, so that one leaves room for the others: each user of a cluster
	// or, without a Gate, each address but this machine's own. 0 means 100,
	// and 1,000.
	MaxRequestsPerCaller, MaxWatchesPerCaller int
	// MaxStrangers is the number of requests at once that wait for a cluster's
	// word on credentials that it has not accepted lately; they are not among
	// MaxRequests. More wait, for StrangerTimeout at most, and are answered 429
	// then. 0 means 32, and 5 seconds.
	MaxStrangers    int
	StrangerTimeout time.Duration
	// MaxStrangersPerAddress is the same for each address, this machine's own
	// too. 0 means half of MaxStrangers.
	MaxStrangersPerAddress int
	// MemoryLimit is how many bytes the server may use: when little is left, it
	// folds what waits for slow watches early, then refuses new watches, then
	// lists of everything, with 429. A quarter of it is for the answers that are
	// being made; those that do not fit wait a moment and then get 429. 0 means what
	// the runtime has been told, by GOMEMLIMIT or debug.SetMemoryLimit, and nothing
	// of all that if it has not, but 1 GiB for answers.
	MemoryLimit int64
	// MaxVisible is the number of namespaces that are looked through for a
	// caller who asks for what is visible. 0 means 1,000.
	MaxVisible int
	// Passthrough hands requests of the Kubernetes API that are not reads of
	// mirrored resources to the cluster, under the credentials of who makes
	// them and never the mirror's. They are refused otherwise.
	Passthrough bool
	// Reads are options of how the mirror is read: of the pages of lists.
	Reads read.Options
	// Kubernetes are options of the Kubernetes API. Its Else, Admit and
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
	def(&o.RequestTimeout, time.Minute)
	def(&o.HeaderTimeout, 10*time.Second)
	def(&o.IdleTimeout, 2*time.Minute)
	def(&o.StrangerTimeout, 5*time.Second)
	number := func(n *int, otherwise int) {
		if *n <= 0 {
			*n = otherwise
		}
	}
	number(&o.MaxConnections, 20_000)
	number(&o.MaxConnectionsPerAddress, max(1, o.MaxConnections/2))
	number(&o.MaxRequests, 400)
	number(&o.MaxWatches, 10_000)
	number(&o.MaxRequestsPerCaller, 100)
	number(&o.MaxWatchesPerCaller, 1_000)
	number(&o.MaxStrangers, 32)
	number(&o.MaxStrangersPerAddress, max(1, o.MaxStrangers/2))
	number(&o.MaxVisible, 1_000)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

const (
	// reconnect is how soon an EventSource should come back.
	reconnect = 2 * time.Second
	// What a request may take.
	maxHeader = 64 << 10
	maxBody   = 3 << 20 // as for an API server
	maxQuery  = 8 << 10
	// maxStreams is the number of requests under way on one connection of
	// HTTP/2; clients of Go open another one then.
	maxStreams = 250
	// quiet is how long a connection of HTTP/2 may be silent before the client
	// is asked whether it is there, and how long that may take.
	quiet = 30 * time.Second
)
