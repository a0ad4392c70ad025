package server

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/audit"
	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
)

// DefaultAddr is the default address of [Server.ListenAndServe].
const DefaultAddr = "127.0.0.1:8888"

// Options of a [Server]. The zero value is usable.
type Options struct {
	// Gate authenticates and authorizes callers. If nil, everybody who can connect
	// reads with the rights of the mirror.
	Gate *access.Gate
	// TLS is the configuration to serve with, nil for plain HTTP; see [LoadTLS] and
	// [GenerateTLS]. With a Gate the server requests client certificates.
	TLS *tls.Config
	// InsecureServeAnyone allows other than loopback addresses without authentication,
	// though everybody who can connect can read all that the mirror can.
	InsecureServeAnyone bool
	// Version of the program, for the index and the metrics, and the revision that it
	// was built from, for the metrics.
	Version, Revision string
	// KeepAlive is how often a watch sends something at least. 0 means 15 seconds.
	KeepAlive time.Duration
	// WriteTimeout is how long a client may take to read one write before the server
	// gives up on it. 0 means 30 seconds.
	WriteTimeout time.Duration
	// ShutdownTimeout is how long requests may go on after a shutdown begins; watches
	// end at once. 0 means 10 seconds.
	ShutdownTimeout time.Duration
	// RequestTimeout is how long a request may take that is not a watch. 0 means 1
	// minute, as for an API server.
	RequestTimeout time.Duration

	// HeaderTimeout is how long a client may take for the TLS handshake, and for the
	// headers of a request. 0 means 10 seconds.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection may be open without a request. 0 means 2
	// minutes.
	IdleTimeout time.Duration

	// MaxConnections is the number of connections; more wait until one is closed. 0
	// means 20,000.
	MaxConnections int
	// MaxConnectionsPerAddress is the same for each address except this machine's own;
	// more are closed at once, to leave room for other addresses. 0 means half of
	// MaxConnections.
	MaxConnectionsPerAddress int
	// MaxRequests and MaxWatches bound the requests in flight and the open watches;
	// more get a 429 with Retry-After. 0 means 400, as for an API server, and 10,000.
	MaxRequests, MaxWatches int
	// MaxRequestsPerCaller and MaxWatchesPerCaller are the same for each caller, to
	// leave room for others: for each user of a cluster or, without a Gate, for each
	// address except this machine's own. 0 means 100 and 1,000.
	MaxRequestsPerCaller, MaxWatchesPerCaller int
	// MaxWindowsPerCaller bounds the windows of live tables that one caller has open.
	// They count as watches, too. 0 means 32.
	MaxWindowsPerCaller int
	// MaxUnverified bounds the requests that wait for a cluster to verify credentials
	// that it has not accepted lately; they do not count against MaxRequests. More
	// requests wait, for UnverifiedTimeout at most, and then get a 429. 0 means 32, and
	// 5 seconds.
	MaxUnverified     int
	UnverifiedTimeout time.Duration
	// MaxUnverifiedPerAddress is the same for each address, this machine's own too. 0
	// means half of MaxUnverified.
	MaxUnverifiedPerAddress int
	// MemoryLimit is how many bytes the server may use. When little is left, it folds
	// the backlogs of slow watches early, then refuses new watches, then full lists,
	// with a 429. A quarter of it is the budget for responses that are being made;
	// those that do not fit wait and then get a 429. 0 means the limit of the runtime,
	// by GOMEMLIMIT or debug.SetMemoryLimit; if it has none, memory is not limited and
	// the budget for responses is 1 GiB.
	MemoryLimit int64
	// MaxVisible is how many namespaces are reviewed for a caller with visible=true. 0
	// means 1,000.
	MaxVisible int
	// Passthrough forwards requests of the Kubernetes API that are not reads of
	// mirrored resources to the cluster, with the credentials of the caller and never
	// with the mirror's. Otherwise they are refused.
	Passthrough bool
	// Audit is the audit log, nil for none. It has an event for each request, with the
	// caller and the action, and without content, tokens and unknown parameters. The
	// caller closes it, after the server has ended.
	Audit *audit.Log
	// Edges are relations of one's own, for trees. nil for none.
	Edges *relations.Edges
	// Reads are options of the reader, such as for the pages of lists.
	Reads read.Options
	// Kubernetes are options of the Kubernetes API. The server sets Else, Admit and
	// Publisher, if not nil, publishes the clusters of the mirror, and Follower is what they come
	// from. Their states are shown.
	Publisher *fleet.Publisher
	Follower  *fleet.Follower
	// Logger.
	Kubernetes kubeapi.Options
	// Logger logs each request at debug level and errors at other levels. nil means
	// slog.Default().
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
	def(&o.UnverifiedTimeout, 5*time.Second)
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
	number(&o.MaxUnverified, 32)
	number(&o.MaxUnverifiedPerAddress, max(1, o.MaxUnverified/2))
	number(&o.MaxVisible, 1_000)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

const (
	// reconnectDelay is how soon an EventSource should reconnect.
	reconnectDelay = 2 * time.Second
	// Sizes of a request.
	maxHeader = 64 << 10
	maxBody   = 3 << 20 // as for an API server
	maxQuery  = 8 << 10
	// maxStreams bounds the concurrent streams of an HTTP/2 connection; Go clients open
	// another connection then.
	maxStreams = 250
	// pingTimeout is how long an HTTP/2 connection may be silent before the server
	// sends a ping, and how long the answer may take.
	pingTimeout = 30 * time.Second
)
