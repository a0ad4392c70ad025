package fleet_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// leaf starts the NATS server of an edge site with the configuration of deploy/fleet, which dials out
// to the server of the rig.
func (r *rig) leaf() *server.Server {
	r.Helper()
	t := r.TB.(*testing.T)
	t.Setenv("HUB", fmt.Sprintf("nats-leaf://%s:%d", "127.0.0.1", r.leafPort))
	t.Setenv("HOSTNAME", "edge")
	opts, err := server.ProcessConfigFile("../../../../deploy/fleet/nats/edge.conf")
	r.must(err)
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	edge, err := server.NewServer(opts)
	r.must(err)
	edge.Start()
	r.Cleanup(func() {
		edge.Shutdown()
		edge.WaitForShutdown()
	})
	r.eventually("the leaf node's connection", func() error {
		if !edge.ReadyForConnections(time.Second) || edge.NumLeafNodes() != 1 {
			return fmt.Errorf("%d connections", edge.NumLeafNodes())
		}
		return nil
	})
	return edge
}

// A publisher at an edge site publishes through a leaf node that dials out, and a replica at the
// centre follows it there. Fresh reads, and the questions about callers, go back the same way.
func TestEdgeSite(t *testing.T) {
	r := newRig(t)
	users := r.configured("hub.conf")
	admin, err := jetstream.New(r.connect(users["ADMIN"]...))
	r.must(err)
	r.must(fleet.AddCluster(r.ctx, admin, "prod", fleet.StreamOptions{}))
	edge := r.leaf()
	r.put("a", "1")
	p := r.publisher("first", func(o *nats.Options) error { o.Servers = []string{edge.ClientURL()}; return nil }, nats.CustomInboxPrefix("_INBOX_prod"))
	if at := p.conn.ConnectedServerName(); at != "edge" {
		t.Fatalf("the publisher is connected to %s", at)
	}
	one := r.replica("one", users["REPLICA"]...)
	one.has(map[string]string{"a": "1"})
	r.put("a", "2")
	one.has(map[string]string{"a": "2"})
	r.eventually("a read of the newest state", func() error {
		got, err := one.list(read.Latest)
		if err == nil && got["a"] != "2" {
			err = fmt.Errorf("got %v", got)
		}
		return err
	})
	one.reviews(http.StatusCreated)
}
