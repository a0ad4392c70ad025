package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// configured starts a NATS server with the configuration of deploy/fleet, and returns how its
// users connect.
func (r *rig) configured(file string) (users map[string][]nats.Option) {
	r.Helper()
	users = map[string][]nats.Option{}
	seeds := map[string]string{}
	for _, name := range []string{"PROD", "REPLICA", "ADMIN"} {
		pair, err := nkeys.CreateUser()
		r.must(err)
		public, err := pair.PublicKey()
		r.must(err)
		r.TB.(*testing.T).Setenv(name+"_NKEY", public)
		seed, err := pair.Seed()
		r.must(err)
		seeds[name] = string(seed)
		users[name] = []nats.Option{nats.Nkey(public, pair.Sign), nats.CustomInboxPrefix("_INBOX_" + strings.ToLower(name))}
	}
	r.TB.(*testing.T).Setenv("HOSTNAME", "configured")
	r.TB.(*testing.T).Setenv("PROD_SEED", seeds["PROD"])
	opts, err := server.ProcessConfigFile("../../../../deploy/fleet/nats/" + file)
	r.must(err)
	opts.Host, opts.Port, opts.StoreDir, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, r.TempDir(), true, true
	opts.LeafNode.Host, opts.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	r.shutdown()
	r.run(opts)
	r.leafPort = opts.LeafNode.Port // as it has become
	return users
}

// A publisher with the rights of the configuration publishes, and a replica follows. Neither can do
// what the other can.
func TestConfiguredRights(t *testing.T) {
	r := newRig(t)
	users := r.configured("nats.conf")
	admin, err := jetstream.New(r.connect(users["ADMIN"]...))
	r.must(err)
	for _, cluster := range []string{"prod", "other"} {
		r.must(fleet.AddCluster(r.ctx, admin, cluster, fleet.StreamOptions{}))
	}
	r.put("a", "1")
	r.publisher("first", users["PROD"]...)
	one := r.replica("one", users["REPLICA"]...)
	one.has(map[string]string{"a": "1"})
	r.put("a", "2")
	one.has(map[string]string{"a": "2"})
	r.eventually("a fresh read", func() error { _, err := one.list(read.Latest); return err })

	for _, c := range []struct{ user, subject string }{
		{"PROD", "tidings.log.other.beat"}, {"PROD", "tidings.snapshots.other.core.v1.pods._all.head"},
		{"PROD", "$JS.API.STREAM.DELETE.TIDINGS_LOG_other"}, {"PROD", "$JS.API.STREAM.PURGE.TIDINGS_LOG_prod"}, {"PROD", "$JS.API.STREAM.PURGE.TIDINGS_SNAPSHOTS_other"}, {"PROD", "$JS.API.STREAM.UPDATE.TIDINGS_LOG_other"}, {"PROD", "$JS.API.STREAM.UPDATE.TIDINGS_LOG_prod"}, {"PROD", "$JS.API.STREAM.CREATE.mine"}, {"PROD", "$JS.API.STREAM.SNAPSHOT.TIDINGS_LOG_prod"}, {"PROD", "$JS.API.STREAM.MSG.GET.TIDINGS_LOG_prod"}, {"PROD", "$JS.API.STREAM.NAMES"},
		{"PROD", "$JS.API.DIRECT.GET.TIDINGS_LOG_prod.tidings.log.prod.changes.core.v1.pods._all"}, {"PROD", "$JS.API.DIRECT.GET.TIDINGS_LOG_other"},
		{"PROD", "$JS.API.DIRECT.GET.TIDINGS_LOG_prod"}, {"PROD", "$JS.API.DIRECT.GET.TIDINGS_SNAPSHOTS_prod"}, {"PROD", "$JS.API.CONSUMER.CREATE.TIDINGS_LOG_prod"}, {"PROD", "tidings.ask.other"},
		{"REPLICA", "tidings.log.prod.beat"}, {"REPLICA", "tidings.snapshots.prod.core.v1.pods._all.head"}, {"REPLICA", "$JS.API.STREAM.DELETE.TIDINGS_LOG_prod"},
	} {
		refused := make(chan error, 1)
		nc := r.connect(append(users[c.user], nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refused <- err:
			default:
			}
		}))...)
		r.must(nc.Publish(c.subject, []byte(`{}`)))
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), "Permissions Violation") {
				t.Errorf("%s to %s: %v", c.user, c.subject, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s may publish to %s", c.user, c.subject)
		}
	}
	for _, subject := range []string{">", "tidings.>", "tidings.log.prod.>", "tidings.ask.other", "_INBOX_replica.>"} {
		refused := make(chan error, 1)
		nc := r.connect(append(users["PROD"], nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))...)
		_, err := nc.SubscribeSync(subject)
		r.must(err)
		select {
		case <-refused:
		case <-time.After(10 * time.Second):
			t.Errorf("a publisher may subscribe to %s", subject)
		}
	}
}
