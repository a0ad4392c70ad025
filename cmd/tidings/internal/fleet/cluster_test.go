package fleet_test

import (
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// cluster replaces the NATS server by three that keep each stream together.
func (r *rig) cluster() (all []*server.Server) {
	r.Helper()
	r.shutdown()
	var routes []*url.URL
	var ports []int
	for range 3 { // a server must know the others before it starts
		l, err := net.Listen("tcp", "127.0.0.1:0")
		r.must(err)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		r.must(l.Close())
	}
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: r.TempDir(), NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "three", Host: "127.0.0.1", Port: ports[i]}, Routes: routes,
		})
		r.must(err)
		s.Start()
		r.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		all = append(all, s)
	}
	r.eventually("a JetStream cluster", func() error {
		for _, s := range all {
			if !s.ReadyForConnections(time.Second) || !s.JetStreamIsCurrent() || len(s.JetStreamClusterPeers()) != 3 && s.JetStreamIsLeader() {
				return fmt.Errorf("%s is not current", s.Name())
			}
		}
		for _, s := range all {
			if s.JetStreamIsLeader() {
				return nil
			}
		}
		return fmt.Errorf("no leader")
	})
	r.nats, r.replicas = all[0], 3
	return all
}

// In a cluster of NATS servers, replicas have what the cluster has when an acknowledgement is
// lost, the publisher is replaced and comes back, and the leader of the stream is killed.
func TestClusterOfServers(t *testing.T) {
	r := newRig(t)
	all := r.cluster()
	s := newSceneOf(t, r)
	first := s.publisher.holds().Epoch
	s.lostAcknowledgement()
	if now := s.publisher.holds().Epoch; now != first {
		t.Errorf("another epoch has begun after a lost acknowledgement")
	}

	second := s.rig.publisher("second")
	s.from.block(toServer, toClient)
	s.write("a")
	epoch := second.holds().Epoch
	s.write("b")
	s.replica.has(s.now())
	s.from.release()
	s.recovers()
	if epoch == first {
		t.Errorf("the epoch %s has not ended", first)
	}

	for _, n := range all {
		if n != r.nats && n.JetStreamIsStreamLeader("$G", logOfProd) {
			n.Shutdown()
			n.WaitForShutdown()
			break
		}
	}
	s.recovers()
	s.unmixed()
}
