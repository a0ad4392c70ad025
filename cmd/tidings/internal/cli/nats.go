package cli

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
)

// natsFlags are the flags of a connection to NATS.
type natsFlags struct {
	credentials, nkey, inbox string
	authority, cert, key     string
}

func (f *natsFlags) flags(g *globals, cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.credentials, "nats-creds", "", "`file` with the credentials for NATS: a user's JWT and its key")
	fs.StringVar(&f.nkey, "nats-nkey", "", "`file` with the seed of an nkey for NATS")
	fs.StringVar(&f.authority, "nats-ca", "", "`file` with the authority of the certificate of NATS")
	fs.StringVar(&f.cert, "nats-cert", "", "`file` with a client certificate for NATS")
	fs.StringVar(&f.key, "nats-key", "", "`file` with the key of that certificate")
	fs.StringVar(&f.inbox, "nats-inbox", "", "`prefix` of the subjects that answers come to, if the credentials permit no other (default _INBOX)")
	g.exclusive(cmd, "they are two ways to authenticate", "nats-creds", "nats-nkey")
	for name, other := range map[string]string{"nats-cert": "nats-key", "nats-key": "nats-cert"} {
		g.flagRules = append(g.flagRules, func(cmd *cobra.Command) error {
			if used := flagInUse(cmd, name); used != "" && flagInUse(cmd, other) == "" {
				return fmt.Errorf("%s needs --%s, too", used, other)
			}
			return nil
		})
	}
}

// connect connects to NATS. If it cannot be reached, the connection is made in the background, or
// with atOnce that is an error.
func (f *natsFlags) connect(url string, log *slog.Logger, atOnce bool) (*nats.Conn, error) {
	for _, file := range []string{f.credentials, f.nkey, f.authority, f.cert, f.key} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
	}
	opts := []nats.Option{
		nats.Name("tidings " + thisBuild().Version), nats.RetryOnFailedConnect(!atOnce), nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnectDelay),
		nats.IgnoreAuthErrorAbort(), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.SyncQueueLen(2048), // an answer has far fewer messages; by default, each question would allocate 0.5 MB
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("connected to NATS", "server", nc.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("connected to NATS again", "server", nc.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("connection to NATS lost; trying until it is back", "err", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("cannot connect to NATS; trying until it succeeds", "err", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("error of NATS", "err", err) }),
	}
	if f.credentials != "" {
		opts = append(opts, nats.UserCredentials(f.credentials))
	}
	if f.nkey != "" {
		key, err := nats.NkeyOptionFromSeed(f.nkey)
		if err != nil {
			return nil, fmt.Errorf("--nats-nkey %s: %w", f.nkey, err)
		}
		opts = append(opts, key)
	}
	if f.authority != "" {
		opts = append(opts, nats.RootCAs(f.authority))
	}
	if f.cert != "" {
		opts = append(opts, nats.ClientCert(f.cert, f.key))
	}
	if f.inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(f.inbox))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("NATS: %w", err)
	}
	return nc, nil
}

// reconnectDelay is how long to wait before a round of attempts to connect to the servers of NATS again. It is not the
// same for all mirrors.
func reconnectDelay(int) time.Duration { return 250*time.Millisecond + rand.N(250*time.Millisecond) }

// streamFlags are the flags of the streams of a cluster.
type streamFlags struct {
	replicas int
	logSize  string
	logBytes int64
}

func (f *streamFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&f.replicas, "stream-replicas", 1, "`number` of NATS servers that keep each stream of a cluster that has none yet: 1, 3 or 5")
	fs.StringVar(&f.logSize, "stream-size", "", "`space` for the log of each cluster that has none yet (default 256Mi)")
}

func (f *streamFlags) check() error {
	if f.replicas != 1 && f.replicas != 3 && f.replicas != 5 {
		return fmt.Errorf("--stream-replicas %d: give 1, 3 or 5", f.replicas)
	}
	if f.logSize != "" {
		q, err := resource.ParseQuantity(f.logSize)
		if err != nil || q.Value() < 8<<20 {
			return fmt.Errorf("--stream-size %q: give 8Mi or more, such as 1Gi", f.logSize)
		}
		f.logBytes = q.Value()
	}
	return nil
}

func (f *streamFlags) options(memory bool) fleet.StreamOptions {
	return fleet.StreamOptions{Replicas: f.replicas, LogSize: f.logBytes, Memory: memory}
}
