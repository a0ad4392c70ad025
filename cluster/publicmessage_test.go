package cluster_test

import (
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// What callers are told says what is wrong, and not where the API server is.
func TestPublicMessages(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c, err := cluster.New("prod", &rest.Config{Host: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Resolve(t.Context(), "pods")
	if err == nil || !strings.Contains(err.Error(), address) {
		t.Fatalf("the operator is not told where the API server is: %v", err)
	}
	said := cluster.PublicMessage(err)
	if strings.Contains(said, "127.0.0.1") || strings.Contains(said, "http") || !strings.Contains(said, `cluster "prod"`) || !strings.Contains(said, "refuses connections") {
		t.Errorf("callers are told %q", said)
	}
}
